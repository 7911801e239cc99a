"""``flat_cases``: one case is the same in every kind of test, and says more the harder it is to come upon."""

from __future__ import annotations

from whetstone.core.problem import AssertTests, CallCase, CallTests, Problem, StdinCase, StdinTests, Tests
from whetstone.data.similarity.flat_cases import FlatCase, read_cases


def cases(tests: Tests) -> list[FlatCase]:
    return read_cases(Problem("p", "Do it.", tests))


def only(tests: Tests) -> FlatCase:
    [case] = cases(tests)
    return case


def asserted(line: str) -> FlatCase:
    return only(AssertTests(asserts=[line]))


def read(given: str, printed: str) -> FlatCase:
    return only(StdinTests([StdinCase(given, printed)]))


def same(a: FlatCase, b: FlatCase) -> bool:
    return bool(set(a.wholes) & set(b.wholes))


CASE = asserted("assert f([3, 1], 'ab') == 4")


def test_a_case_is_the_same_in_every_assert_and_for_a_program_that_reads_it() -> None:
    for other in (
        "assert other_name([3, 1], 'ab') == 4",
        "assert 4 == f([3, 1], 'ab')",
        "assert f((3.0, 1), 'ab') == 4, 'four'",
        "assert abs(f([3, 1], 'ab') - 4) < 1e-6",
        "assert math.isclose(f([3, 1], 'ab'), 4.0, rel_tol=1e-3)",
        "assert f(xs=[3, 1], name='ab') == 4",
        "assert f('ab', [3, 1]) == 4",
    ):
        assert same(CASE, asserted(other))
    for given in ("2\n3 1\nab\n", "3 1\nab", "[3, 1]\n'ab'\n", "3, 1\nab\n", "3\n1\nab"):
        assert same(CASE, read(given, "4\n"))


def test_is_the_same_for_a_call() -> None:
    assert same(CASE, only(CallTests([CallCase(4, [[3, 1], "ab"])], "g")))


def test_tables_are_read_after_their_sizes() -> None:
    table = asserted("assert f([[1, 2, 3], [4, 5, 6]]) == [5, 7, 9]")
    for given in ("2 3\n1 2 3\n4 5 6", "2\n3\n1 2 3\n3\n4 5 6", "2\n1 2 3\n4 5 6"):
        assert same(table, read(given, "5 7 9"))


def test_sets_have_no_order_and_yes_is_true() -> None:
    assert same(asserted("assert set(f([1])) == set((5, 4))"), asserted("assert f([1]) == {4, 5}"))
    assert same(asserted("assert f('a b')"), read("a b", "YES"))
    assert same(asserted("assert not f('a b')"), read("a b", "False"))


def test_another_value_is_another_case() -> None:
    for other in ("assert f([3, 1], 'ab') == 5", "assert f([3, 2], 'ab') == 4", "assert f([3, 1]) == 4"):
        assert not same(CASE, asserted(other))


def test_computed_values_have_no_plain_case() -> None:
    assert cases(AssertTests(asserts=["assert f(g(2)) == 4", "assert f(x) == y", "assert True"])) == []


def test_small_and_counted_numbers_say_little() -> None:
    small = asserted("assert f([1, 2, 3, 4, 5]) == True")
    rare = asserted("assert f([813, 77, 4096, 19, 250]) == 731")
    assert small.bits < 10 < 40 < rare.bits


def test_lists_nested_beyond_reason_are_left_out() -> None:
    value: list[object] = []
    for _ in range(5000):
        value = [value]
    assert cases(CallTests([CallCase(1, [value])], "f")) == []
