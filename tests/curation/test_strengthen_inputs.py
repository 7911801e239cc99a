"""Inputs that ``data strengthen`` makes from given ones, and the mutants for which it chooses them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whetstone.core.problem import Program
from whetstone.data.validate.mutants import mutants
from whetstone_curation.strengthen.choice import features_of
from whetstone_curation.strengthen.inputs import Inputs
from whetstone_curation.strengthen.invariants import PROPERTIES, relations_of, with_properties, with_relations
from whetstone_curation.strengthen.schema import NO_CONSTANTS, constants_of, schema_of
from whetstone_curation.strengthen.subtle_mutations import subtle_operators

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-50, 50) | st.floats(-9, 9) | st.text("ab1 {}", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)


def made(seeds: list[list[Any]], count: int = 60, statement: str = "", **options: Any) -> list[list[Any]]:
    return Inputs(seeds, statement, options.pop("hints", []), "seed", **options).candidates(count)


# Inputs are drawn by Hypothesis, too.
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.nested_given])
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_any_given_values_have_a_schema_and_new_inputs(values: list[Any]) -> None:
    assert schema_of(values)
    inputs = made([[value] for value in values], 4)
    assert len({repr(each) for each in inputs}) == len(inputs)
    assert not {repr(each) for each in inputs} & {repr([value]) for value in values}
    assert all(features_of(each, None) for each in inputs)


@pytest.mark.parametrize(
    ("seeds", "edges"),
    [
        ([[3], [7]], [1, 2, 14]),
        ([[0], [7]], [1, 2, 10]),
        ([[-3], [7]], [0, 1, -1]),
        ([["abc"], ["xyzzy"]], ["", "a"]),
        ([[[1, 2, 3]], [[4, 5]]], [[], [1], [1, 1, 1]]),
        ([[{"a": 1}], [{"b": 2, "c": 3}]], [{}]),
        ([[True]], [False]),
    ],
)
def test_the_boundary_values_of_each_type_come_first(seeds: list[list[Any]], edges: list[Any]) -> None:
    inputs = [each[0] for each in made(seeds)]
    assert all(edge in inputs[:25] for edge in edges)


def test_negative_numbers_need_a_given_one_or_code_for_them() -> None:
    seeds = [[4], [9], [30]]
    assert all(each[0] >= 0 for each in made(seeds))
    assert {0, -1} <= {each[0] for each in made(seeds, wide=True)}
    assert all(each[0] >= 1 for each in made(seeds, statement="A positive integer.", wide=True))
    assert all(each[0] >= 0 for each in made(seeds, statement="a non-negative integer", wide=True))


def test_wide_inputs_have_constants_of_the_reference() -> None:
    source = (
        'def f(text, n):\n    "of no use"\n    return text in ["east", "west", "+", " "] and n > 65 or 99'
    )
    seeds, constants = [["north", 4], ["south", 20]], constants_of(Program("python", source))
    texts, numbers = zip(*made(seeds, 400, wide=True, constants=constants), strict=True)
    assert {"east", "westeast", "+north", "north+"} <= {*texts}
    assert "+" not in texts  # a mark alone
    assert not any("use" in text or " " in text for text in texts)
    assert {64, 65, 66, 98, 99, 100} <= {*numbers}
    assert (
        constants_of(Program("cpp", source)) == constants_of(Program("python", "not Python")) == NO_CONSTANTS
    )


@pytest.mark.extended
def test_grids_of_one_size_get_other_sizes_in_wide_inputs() -> None:
    grids = [[[[number, 2], [3, number]]] for number in range(5)]
    assert {len(each[0]) for each in made(grids)} == {2}
    wide = made(grids, 400, wide=True)
    assert {1, 3, 4} <= {len(each[0]) for each in wide}
    assert [] not in [each[0] for each in wide + made([[[[1]]], *grids[:3]], 400)]
    assert all(len(row) == len(each[0]) for each in wide for row in each[0])


def test_order_distinct_items_and_the_text_around_numbers_are_kept() -> None:
    ordered = made([[[1, 4, 9]], [[2, 3, 8, 11]], [[0, 5, 6]]])
    assert all(each[0] == sorted(each[0]) for each in ordered)
    several = made([[[7, 2, 9, 4, 1, 8]], [[3, 9, 5, 2, 6, 8, 1]], [[4, 1, 8, 3, 2]], [[6, 5, 4, 9, 7, 1]]])
    assert all(len(set(each[0])) == len(each[0]) for each in several)
    lists = [[[7, 2, 9, 4, 1, 8]], [[3, 9, 5, 2, 6, 8, 1]], [[4, 1, 8, 3, 2]], [[6, 5, 4, 9, 7, 1]]]
    assert any(len(set(each[0])) < len(each[0]) for each in made(lists, wide=True))
    words = [["one two"], ["three four five"], [""]]
    assert all(each[0].split(" ") == each[0].split() or not each[0] for each in made(words))
    assert any(each[0] != " ".join(each[0].split()) for each in made(words, wide=True))
    assert any(len(set(each[0])) < len(each[0]) for each in made([[[1, 2, 3]], [[4, 5, 9]], [[8, 1]]]))
    texts = [each[0] for each in made([["5 apples and 6 pears"], ["0 apples and 1 pears"]])]
    assert all(text.split()[1] == "apples" and text.split()[4] == "pears" for text in texts)


def test_a_length_is_kept_that_enough_given_values_have() -> None:
    pairs = made([[["(", ")"]], [["((", "x"]], [["y", "z"]], [["a", "b"]]])
    assert {len(each[0]) for each in pairs} == {2}
    assert {len(each[0]) for each in made([[["(", ")"]], [["((", "x"]]])} > {0, 1, 2, 3}


def test_arguments_of_one_type_are_exchanged() -> None:
    assert [5, 3, "a"] in made([[3, 5, "a"], [7, 9, "b"]])


def test_whole_numbers_stay_whole_next_to_fractions() -> None:
    items = [item for each in made([[[1, 0.5]], [[3, 2.5, 7]]]) for item in each[0]]
    assert {int, float} <= {type(item) for item in items}


def test_annotations_add_types_that_no_input_shows() -> None:
    assert any(isinstance(each[0], float) and each[0] % 1 for each in made([[1], [2]], hints=["n: float"]))
    assert [None] in made([["a"], ["b"]], hints=["text: Optional[str]"])
    seeds = [["ab"], [[]], ["cd"]]
    lists = [
        each[0] for each in made(seeds) + Inputs(seeds, "", [], "seed").rich(30) if type(each[0]) is list
    ]
    assert not any(lists)


@pytest.mark.parametrize(
    ("statement", "least", "most"),
    [
        ("Assume n > 1 and n is not a prime.", 2, 60),
        ("Constraints: 3 <= n <= 40.", 3, 40),
        ("n is at most 10^9: n <= 10^9", 1, 60),
        ("Return 5 if n >= 4.", 1, 60),
        ("count > 7", 1, 60),
        ("It holds that n > 25.", 1, 60),
    ],
    ids=["above", "both", "power", "condition", "other name", "violated by a given input"],
)
def test_numbers_stay_within_the_bounds_of_the_statement(statement: str, least: int, most: int) -> None:
    found = [each[0] for each in made([[4], [9], [30]], 100, statement, hints=["n: int"])]
    assert (min(found), max(found)) == (least, most)


def test_rich_inputs_are_long_and_repeat_their_items() -> None:
    inputs = Inputs([[[3, 1], "ab"], [[4], "bcdefgh"]], "", [], "seed").rich(30)
    assert inputs
    assert all(len(items) >= 8 and len(text) >= 8 for items, text in inputs)
    assert any(len(set(items)) < len(items) for items, _ in inputs)
    assert Inputs([[3]], "", [], "seed").rich(30) == []


def test_many_zeros_and_ones_are_bits() -> None:
    bits = [[[0, 1, 0, 0, 1]], [[1, 1, 0]], [[0, 0, 0, 1]], [[1, 0, 1, 1, 0, 0]]]
    assert {item for each in made(bits, wide=True) for item in each[0]} == {0, 1}
    assert {item for each in made(bits[:2]) for item in each[0]} > {0, 1, 2}


def test_relations_between_arguments_hold_in_new_inputs() -> None:
    seeds = [[[1, 2, 3], 3], [[4], 1], [[5, 6], 2]]
    assert all(len(items) == count for items, count in made(seeds))
    pairs = [[[1, 2], [3, 4]], [[5], [6]], [[7, 8, 9], [1, 1, 1]]]
    assert all(len(one) == len(other) for one, other in made(pairs))
    texts = made([["01", "11"], ["1", "0"], ["0110", "1010"]])
    assert all(len(one) == len(other) for one, other in texts)
    assert relations_of([[[1, 2], 1]]) == []
    assert with_relations(relations_of(seeds), [[1, 2, 3, 4], 0]) == [[1, 2, 3, 4], 4]


def test_a_list_stays_longer_than_another_by_as_much() -> None:
    seeds = [[["+"], [2, 3]], [["+", "*"], [2, 3, 4]], [["-", "*", "-"], [5, 3, 4, 5]]]
    inputs = made(seeds) + Inputs(seeds, "", [], "seed").rich(20)
    assert all(len(numbers) == len(symbols) + 1 for symbols, numbers in inputs if symbols)
    assert {symbol for symbols, _ in inputs for symbol in symbols} == {"+", "-", "*"}


def test_rows_keep_the_order_of_their_two_numbers() -> None:
    seeds = [[[(1, 4), (2, 9), (0, 3)]], [[(5, 6), (2, 8)]], [[(7, 20), (3, 4), (1, 2)]]]
    assert all(one < other for each in made(seeds) for one, other in each[0])
    assert any(one >= other for each in made([[[(1, 4), (9, 2)]], [[(5, 6)]]]) for one, other in each[0])


def test_grids_stay_square_and_brackets_in_pairs() -> None:
    grids = [[[1, 2], [3, 4]], [[5, 9, 1], [2, 8, 8], [4, 3, 3]], [[0, 1], [7, 7]]]
    inputs = Inputs([[grid] for grid in grids], "", [], "seed")
    assert all(
        len(row) == len(each[0]) for each in inputs.candidates(60) + inputs.rich(20) for row in each[0]
    )
    texts = made([["(())"], ["() ()"], ["(()())"], ["( )"], ["((()))"]])
    assert all(text.count("(") == text.count(")") and not text.startswith(")") for [text] in texts)
    assert any(text.count("(") != text.count(")") for [text] in made([["(())"], [")("], ["(()"], ["( )"]]))
    words = made([["(()()) ((())) ()"], ["() (()) ((()))"], ["(()(())((())))"]])
    assert all(word.count("(") == word.count(")") for [text] in words for word in text.split(" "))
    deep = made([["(" * 900 + ")" * 900], ["()" * 1200]])
    assert all(text.count("(") == text.count(")") for [text] in deep)


def test_long_equal_items_end_with_another_one() -> None:
    assert any(set(text[:12]) < set(text) and len({*text[:12]}) == 1 for [text] in made([["ab"], ["bba"]]))
    assert any(len({*items[:12]}) == 1 and items[0] != items[-1] for [items] in made([[[4, 2]], [[3]]]))
    palindromes = [text for [text] in made([["abc"], ["xyz"]]) if len(text) > 20 and text[0] == text[-1]]
    assert any(text != text[::-1] for text in palindromes)
    assert any(text == text[::-1] for text in palindromes)


@given(st.sampled_from(sorted(PROPERTIES)), st.lists(st.integers(-3, 9), max_size=7))
def test_each_property_holds_after_the_change(name: str, numbers: list[int]) -> None:
    items: list[Any] = numbers
    if name in ("rows of equal length", "square", "numbered square"):
        items = [numbers[:at] for at in range(len(numbers))]
    elif name == "first below second":
        items = numbers[:2] if len(numbers) > 1 else [3, 3]
    elif name in ("brackets in pairs", "brackets of words in pairs", "single blanks"):
        items = list("".join("()[]{} "[number % 7] for number in numbers))
    changed = with_properties([name], items)
    assert PROPERTIES[name].holds(changed)
    assert with_properties([name], changed) == changed


def test_letters_of_a_class_are_added_unless_few_letters_are_no_chance() -> None:
    assert any(not set(each[0]) <= set("ARS") for each in made([["A"], ["R"], ["S"]]))
    assert all(set(each[0]) <= set("ACGT") for each in made([["ACGTTGCA"], ["TTAGC"], ["GATTACA"]]))


def test_the_same_seed_gives_the_same_inputs() -> None:
    seeds = [["abc", [1, 2]], ["x y", [-3]]]
    assert made(seeds) == made(seeds)
    assert made(seeds) != Inputs(seeds, "", [], "another seed").candidates(60)


@pytest.mark.parametrize(
    ("kind", "source", "changed"),
    [
        ("repetitions", "def f(xs):\n    return sum(xs)\n", "sum(dict.fromkeys(xs))"),
        ("items", "def f(xs):\n    for x in xs:\n        print(x)\n", "list(xs)[1:]"),
        ("variable", "def f(a, b):\n    return a\n", "return b"),
        ("text", "def f():\n    return 'Ab'\n", "return 'aB'"),
    ],
)
def test_each_subtle_kind_of_mutant(kind: str, source: str, changed: str) -> None:
    found = mutants(source, 40, "seed", subtle_operators)
    assert any(each.change.startswith(kind) and changed in each.source for each in found)
    assert all(each.source != source for each in found)


def test_letters_of_other_classes_are_tried_only_on_request() -> None:
    seeds = [["abcdefghij"], ["klmnop"]]
    usual = Inputs(seeds, "", [], "seed").candidates(80)
    assert all(each[0].islower() for each in usual if each[0])
    more = Inputs(seeds, "", [], "seed", wide=True, other_letters="0123456789.").candidates(80)
    assert any(not each[0].isalpha() for each in more if each[0])
