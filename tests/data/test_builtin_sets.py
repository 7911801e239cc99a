"""Sets by name: what ships, a file, a seeded subset, and what happens to a name nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.data.builtin import subset
from whetstone.data.dataset import load_problems
from whetstone.data.files import write_problems


def problems(count: int) -> list[Problem]:
    tests = StdinTests([StdinCase("1\n", "1\n")])
    return [Problem(id=f"p/{i}", statement="s", tests=tests) for i in range(count)]


def test_all_is_train_and_heldout_together() -> None:
    parts = load_problems("builtin:train") + load_problems("builtin:heldout")
    assert load_problems("builtin:all") == parts


def test_generated_sets_are_loaded_by_the_same_call() -> None:
    train = {p.id for p in load_problems("micro:train")}
    heldout = {p.id for p in load_problems("micro:heldout")}
    assert train
    assert heldout
    assert not train & heldout


def test_a_file_is_a_set(tmp_path: Path) -> None:
    write_problems(tmp_path / "p.jsonl", problems(3))
    assert load_problems(tmp_path / "p.jsonl") == problems(3)
    assert load_problems(str(tmp_path / "p.jsonl"), max_problems=2) == subset(problems(3), 2, 0)


def test_a_subset_is_decided_by_its_seed_and_keeps_the_order() -> None:
    all_of_them = problems(50)
    first = subset(all_of_them, 10, seed=1)
    assert len({p.id for p in first}) == 10
    assert [p for p in all_of_them if p in first] == first
    assert subset(all_of_them, 10, seed=1) == first
    assert subset(all_of_them, 10, seed=2) != first
    assert subset(all_of_them, 0, seed=1) == all_of_them
    assert subset(all_of_them, 99, seed=1) == all_of_them


@pytest.mark.parametrize("name", ["builtin:trian", "builtin:trainn", "builtin-train"])
def test_an_unknown_name_suggests_the_closest(name: str) -> None:
    with pytest.raises(UserError, match=r"did you mean `builtin:train`\?"):
        load_problems(name)


def test_a_missing_file_is_reported_as_a_file() -> None:
    with pytest.raises(UserError, match="no such file"):
        load_problems("nowhere/problems.jsonl")


def test_a_set_without_problems_is_refused(tmp_path: Path) -> None:
    write_problems(tmp_path / "p.jsonl", [])
    with pytest.raises(UserError, match="contains no problems"):
        load_problems(tmp_path / "p.jsonl")
