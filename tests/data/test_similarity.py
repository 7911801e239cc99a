"""What two problems have in common: words, signatures, cases and programs in normal form."""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st

from whetstone.core.problem import AssertTests, CallCase, CallTests, Problem, StdinCase, StdinTests, Tests
from whetstone.data.similarity.cases import read_tests, shared_cases
from whetstone.data.similarity.minhash import SIZE, buckets, estimate, signature
from whetstone.data.similarity.programs import read_program
from whetstone.data.similarity.words import jaccard, prose, read_words, shingles

HASHES = st.integers(0, 2**64 - 1)


def problem(tests: Tests) -> Problem:
    return Problem("p/1", "statement", tests)


def test_formatting_does_not_change_a_statement() -> None:
    plain = read_words("You are given n numbers. Print the sum of those with 1 <= a_i * 2.")
    for other in (
        "  You are given  n numbers.\r\nPrint the sum of those with 1 ≤ a_i × 2.",
        "You are given $n$ numbers. Print the **sum** of those with $1 \\le a_{i} \\times 2$.",
        "<p>You are given <b>n</b> numbers.</p><p>Print the sum of those with 1 &lt;= a_i * 2.</p>",
        "-----\nYou are given `n` numbers. Print the SUM of those with 1 <= a_i * 2.\n-----",
        "## You are given n numbers.\nPrint the sum of those with 1 ⩽ a_i ⋅ 2.",
    ):
        assert read_words(other) == plain


def test_words_numbers_and_operators_distinguish_statements() -> None:
    for one, other in (
        ("print the sum of two numbers", "print the product of two numbers"),
        ("numbers up to 100", "numbers up to 1000"),
        ("all x with x > 3", "all x with x < 3"),
        ("the value of (a + b) * c", "the value of a + (b * c)"),
        ("2 numbers and 3 words", "3 numbers and 3 words"),
    ):
        assert read_words(one).exact != read_words(other).exact


def test_the_same_words_in_another_order_share_a_bag_but_not_with_other_numbers() -> None:
    one = read_words("Print the sum. There are 5 numbers, at most 100 each.")
    assert one.bag == read_words("There are 5 numbers, at most 100 each. Print the sum.").bag
    assert one.bag != read_words("There are 5 numbers, at most 1000 each. Print the sum.").bag
    assert one.bag != read_words("There are 5 numbers, at most 5 or 100 each. Print the sum.").bag


@given(st.text())
@example("\\")
@example("\ud800")
def test_any_text_has_words(text: str) -> None:
    words = read_words(text)
    assert words == read_words(text)
    assert bool(shingles(words.tokens)) == bool(words.tokens)
    read_words(prose(text))


def test_prose_leaves_code_out() -> None:
    statement = (
        'from typing import List\n\ndef f(xs: List[int]) -> int:\n    """ Add up all of xs.\n'
        '    >>> f([1, 2])\n    3\n\n    From here on it is text: import it.\n    """\nassert f([1]) == 1\n'
    )
    assert " ".join(prose(statement).split()) == "Add up all of xs. From here on it is text: import it."


@given(st.sets(HASHES, min_size=1), st.randoms(use_true_random=False))
def test_a_signature_depends_on_the_set_alone(elements: set[int], rng: random.Random) -> None:
    shuffled = sorted(elements, key=lambda _: rng.random())
    assert signature(shuffled) == signature(elements)
    assert len(signature(elements)) == SIZE
    assert estimate(signature(elements), signature(elements)) == 1.0


@given(st.integers(1, 400), st.integers(0, 400), st.integers(0, 400), st.integers(0, 2**32))
def test_signatures_estimate_the_jaccard_similarity(shared: int, mine: int, theirs: int, seed: int) -> None:
    rng = random.Random(seed)
    draw = [rng.getrandbits(64) for _ in range(shared + mine + theirs)]
    a, b = set(draw[: shared + mine]), set(draw[:shared]) | set(draw[shared + mine :])
    filled = len({element % SIZE for element in a | b})
    # Five and a half standard errors. Only filled bins are independent: the others borrow their values.
    assert abs(estimate(signature(a), signature(b)) - jaccard(a, b)) <= 5.5 * 0.5 / filled**0.5


def test_near_sets_meet_in_a_bucket_and_far_ones_rarely() -> None:
    rng = random.Random(1)
    near: list[set[int]] = []
    for _ in range(200):
        core = {rng.getrandbits(64) for _ in range(80)}
        near += [core | {rng.getrandbits(64) for _ in range(10)} for _ in range(2)]  # similarity 0.8
    met = {
        tuple(sorted((a, b)))
        for group in buckets([signature(s) for s in near], 0.8)
        for a in group
        for b in group
        if a != b
    }
    pairs = {(i, i + 1) for i in range(0, 400, 2)}
    assert len(pairs & met) >= 198
    assert len(met - pairs) <= 5
    assert list(buckets([signature(()), signature(())], 0.8)) == []


def test_the_same_tests_are_the_same_in_every_form() -> None:
    called = problem(
        CallTests([CallCase([1, 2], [[2, 1]]), CallCase(3, [1], {"b": 2}), CallCase(True, ["a"])], "f")
    )
    asserted = problem(
        AssertTests(
            asserts=["assert g([2, 1]) == [1, 2]", "assert g(1, b=2) == 3.0", "assert g('a')"],
        )
    )
    checked = problem(
        AssertTests(
            check="def check(candidate):\n    assert candidate((2, 1)) == (1, 2)\n"
            "    assert candidate(1, 2) == 3, 'why'\n    assert candidate('a') is True\n",
            entry_point="h",
        )
    )
    prints = [read_tests(p) for p in (called, asserted, checked)]
    assert [set(p.wholes) for p in prints] == [set(prints[0].wholes)] * 3
    assert [p.name for p in prints] == ["f", "g", "h"]
    assert [p.count for p in prints] == [3, 3, 3]
    assert shared_cases(prints[0], prints[2]) == (3, 0)


def test_texts_match_across_white_space_and_line_ends() -> None:
    one = read_tests(problem(StdinTests([StdinCase("1 2\r\n3\r\n", "1.50\n")])))
    other = read_tests(problem(StdinTests([StdinCase("1 2 3", "1.5")])))
    assert shared_cases(one, other) == (1, 0)
    different = read_tests(problem(StdinTests([StdinCase("1 2 3", "1.05")])))
    assert shared_cases(one, different) == (0, 1)


def test_few_short_tests_identify_nothing() -> None:
    few = StdinTests([StdinCase(str(i), str(i * i)) for i in range(4)])
    many = StdinTests([StdinCase(str(i), str(i * i)) for i in range(5)])
    assert read_tests(problem(few)).fingerprint is None
    assert read_tests(problem(many)).fingerprint is not None
    assert (
        read_tests(problem(StdinTests([StdinCase("x" * 60, "yes!")]))).fingerprint
        != read_tests(problem(StdinTests([StdinCase("x" * 60, "no!!")]))).fingerprint
    )


def test_test_code_that_computes_is_compared_as_code() -> None:
    code = (
        "def check(candidate):\n    for i in range(10):\n        assert candidate(i) == sum(range(i)) + {}\n"
    )
    tests = [read_tests(problem(AssertTests(check=code.format(n), entry_point="f"))) for n in ("0", " 0", 1)]
    assert tests[0].fingerprint == tests[1].fingerprint != tests[2].fingerprint
    assert not tests[0].wholes


def test_a_program_keeps_its_form_under_other_names_and_layout() -> None:
    one = read_program(
        "import math\ndef area(radius: float) -> float:\n    '''The area.'''\n    # of a circle\n"
        "    total: float = math.pi * radius ** 2\n    return round(total, 2)\n"
    )
    other = read_program("import math as m\nimport math\ndef f(r):\n  t = math.pi*r**2\n  return round(t,2)")
    changed = read_program("import math\ndef f(r):\n  t = math.pi*r**3\n  return round(t,2)")
    assert one is not None
    assert other is not None
    assert changed is not None
    assert one == other
    assert one.hash != changed.hash
    assert read_program("print 'Python 2'") is None
    assert read_program("x = " + "(" * 5000 + ")" * 5000) is None
