"""``gist`` and ``gist_index``: a statement is known again in other words, and another one is not."""

from __future__ import annotations

import pytest

from whetstone.data.gist_index import GistIndex, Likeness
from whetstone.data.similarity.gist import gist_words, stems

TOWERS = (
    "Given a list of the heights of the towers of a harbour town, count how many towers see the morning sun "
    "first, which are those that are strictly taller than every tower that stands to the east of them."
)
OTHERS = [
    "Write a function to find the largest even number in a list of integers.",
    "Write a function to remove the vowels of a string and return what is left in upper case.",
    "Write a function to check whether two matrices have the same determinant.",
    "Given a list of the weights of parcels, split them over two wagons so that both weigh the same.",
]


def index(*statements: str) -> GistIndex:
    made = GistIndex()
    for statement in statements:
        made.add(gist_words(statement))
    return made


def best(found: dict[int, Likeness]) -> Likeness:
    return max(found.values(), key=lambda likeness: likeness.ratio)


def test_a_reworded_statement_is_similar() -> None:
    for reworded in (
        "Tally the towers of a harbour city that spot the morning sun initially: those that are strictly "
        "taller than each tower standing east of them. You are supplied an array of the heights.",
        TOWERS.replace("harbour", "harbr").replace("morning sun", "sun morning").replace("strictly ", ""),
        f"A ship brings bricks. {'The crew sings all day long. ' * 12}{TOWERS} {'Nobody sleeps. ' * 20}",
    ):
        found = best(index(*OTHERS, TOWERS).near(gist_words(reworded)))
        assert found.number == len(OTHERS)
        assert found.ratio >= 1


def test_another_statement_is_not_similar() -> None:
    for other in (
        "Given a list of the heights of children, count how many neighbours differ by more than five.",
        "Write a function to find the smallest odd number in a list of integers and square it.",
        "Write a function to remove the digits of a sentence.",
    ):
        found = index(*OTHERS, TOWERS).near(gist_words(other))
        assert all(likeness.ratio < 1 for likeness in found.values())


def test_shorter_statements_need_a_higher_similarity() -> None:
    made = index(*OTHERS, "Return the sum of a list.", TOWERS)
    short = made.likeness(gist_words("Return the sum of a list."), len(OTHERS))
    long = made.likeness(gist_words(TOWERS), len(OTHERS) + 1)
    assert short.value == pytest.approx(long.value)
    assert short.bound > long.bound


def test_words_that_the_set_has_everywhere_say_nothing() -> None:
    text = "The wandering cartographer asks for the number of lakes on the northern island."
    fresh, common = index(text), index(text)
    for number in range(400):
        common.count(
            gist_words(f"The wandering cartographer asks for chart {number} of the northern island.")
        )
    half = gist_words("The wandering cartographer asks for all roads on the northern island.")
    assert fresh.likeness(half, 0).ratio > common.likeness(half, 0).ratio


def test_synonyms_and_endings_are_one_word_and_filler_is_left_out() -> None:
    assert stems(gist_words("Write a function that removes the largest element")) == stems(
        gist_words("write a python function deleting maximum elements")
    )


def test_examples_are_no_words_of_the_statement() -> None:
    bare = "Count the lakes of an island."
    shown = (
        f"{bare}\nFor example:\nlakes('~.~') == 2\nYour code should pass these tests:\nassert lakes('') == 0"
    )
    assert gist_words(shown) == gist_words(bare)
