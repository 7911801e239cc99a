"""A dataset folder: steps lose no problem, splits stay, a folder is there whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import CaseGroup, Problem, Scoring, StdinCase, StdinTests
from whetstone.data.builtin import shipped_problems, subset
from whetstone.data.card import read_card
from whetstone.data.dataset import DatasetWriter, is_dataset, load_problems, open_problems, transform
from whetstone.data.decisions import DecisionLog, ProblemDecision, read_decisions
from whetstone.data.files import read_problems, write_problems


def make(number: int, source: str = "demo") -> Problem:
    return Problem(
        f"{source}/{number}", f"Print {number}.", StdinTests([StdinCase("", f"{number}\n")]), source=source
    )


def drop(problem: Problem, reason: str, step: str = "select") -> ProblemDecision:
    return ProblemDecision(problem.id, step, "drop", reason, "told <b>why</b>", problem.source)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "set") as writer:
        for number in range(8):
            writer.add(make(number), "validation" if number % 4 == 3 else "train")
        writer.decide(ProblemDecision("demo/none", "import", "drop", "no_tests", source="demo"))
    return tmp_path / "set"


def halve(problems: Iterator[Problem]) -> Iterator[Problem | ProblemDecision]:
    for number, problem in enumerate(problems):
        yield drop(problem, "odd") if number % 2 else problem


def test_a_dataset_is_opened_whole_by_split_and_as_a_list(folder: Path) -> None:
    assert is_dataset(folder)
    assert [p.id for p in open_problems(f"{folder}:validation")] == ["demo/3", "demo/7"]
    assert [p.id for p in open_problems(folder)] == [f"demo/{n}" for n in (0, 1, 2, 4, 5, 6, 3, 7)]
    assert load_problems(f"{folder}:train", max_problems=6) == list(open_problems(f"{folder}:train"))
    with pytest.raises(UserError, match=r"no split `trian`; did you mean `train`\?"):
        open_problems(f"{folder}:trian")


def test_a_step_keeps_splits_and_appends_its_decisions(folder: Path, tmp_path: Path) -> None:
    counts = transform(folder, tmp_path / "half", halve)
    assert (counts.read, counts.kept, counts.dropped) == (8, 4, 4)
    assert [p.id for p in open_problems(tmp_path / "half:train")] == ["demo/0", "demo/2", "demo/5"]
    assert [p.id for p in open_problems(tmp_path / "half:validation")] == ["demo/3"]
    reasons = [(d.step, d.reason) for d in read_decisions(tmp_path / "half" / "decisions.jsonl")]
    assert reasons == [("import", "no_tests")] + [("select", "odd")] * 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["half", "set"]


def test_the_card_counts_every_problem_from_the_first_step_to_the_last(folder: Path, tmp_path: Path) -> None:
    transform(folder, tmp_path / "half", halve)
    transform(f"{tmp_path / 'half'}:train", tmp_path / "one", halve)
    card = read_card(tmp_path / "one")
    assert card is not None
    drop_report = [(step.step, step.read, step.dropped, step.kept) for step in card.drop_report]
    assert drop_report == [("import", 9, 1, 8), ("select", 8, 5, 3), ("split", 3, 1, 2)]
    assert card.problems == {"train": 2, "validation": 0}
    assert card.kinds == {"stdin": 2}
    page = (tmp_path / "one" / "card.html").read_text()
    assert "told &lt;b&gt;why&lt;/b&gt;" in page
    assert "<b>why" not in page
    assert "script-src" not in page  # the shell that it shares with reports gives none
    assert "http" not in page.replace("http-equiv", "")


def test_the_card_tells_the_sources_difficulty_from_a_models_pass_rate(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "set") as writer:
        for number, meta in enumerate(
            [
                {"difficulty": "hard", "pass_rate": {"model": "m", "n": 8, "passed": 2}},
                {"difficulty": 1250, "pass_rate": {"model": "m", "n": 8, "passed": 8}},
                {"difficulty": 1300.0, "pass_rate": {"model": "m", "n": 0, "passed": 0}},
                {},
            ]
        ):
            writer.add(msgspec.structs.replace(make(number), meta=meta))
    card = read_card(tmp_path / "set")
    assert card is not None
    assert card.difficulty == {"1200-1599": 2, "hard": 1, "not said": 1}
    assert list(card.pass_rate.items()) == [("up to 25%", 1), ("all", 1), ("not measured", 2)]


def test_a_step_that_loses_or_invents_a_problem_fails_and_leaves_nothing(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="lost 8 problems without a decision"):
        transform(folder, tmp_path / "out", lambda problems: (drop(p, "x") for p in problems if not p.id))
    with pytest.raises(AssertionError, match="'demo/99' twice, or without reading it"):
        transform(folder, tmp_path / "out", lambda problems: [make(99), *problems])
    with pytest.raises(AssertionError, match="'demo/0' twice, or without reading it"):
        transform(folder, tmp_path / "out.jsonl", lambda problems: (p for q in problems for p in (q, q)))
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.jsonl").exists()


def test_a_problem_file_becomes_a_file_and_its_decisions_or_a_folder(tmp_path: Path) -> None:
    write_problems(tmp_path / "p.jsonl", [make(n) for n in range(4)])
    for _ in range(2):
        transform(tmp_path / "p.jsonl", tmp_path / "q.parquet", halve)
    assert [p.id for p in read_problems(tmp_path / "q.parquet")] == ["demo/0", "demo/2"]
    assert [d.problem_id for d in read_decisions(tmp_path / "q.decisions.jsonl")] == ["demo/1", "demo/3"]
    transform(tmp_path / "p.jsonl", tmp_path / "folder", halve)
    assert [p.id for p in open_problems(tmp_path / "folder:train")] == ["demo/0", "demo/2"]
    transform("builtin:heldout", tmp_path / "shipped", lambda problems: problems)
    assert list(open_problems(tmp_path / "shipped")) == list(shipped_problems("builtin:heldout"))


def test_only_a_dataset_is_replaced_and_never_the_one_that_is_read(folder: Path, tmp_path: Path) -> None:
    transform(folder, tmp_path / "out", halve)
    transform(folder, tmp_path / "out", lambda problems: problems)
    assert len(list(open_problems(tmp_path / "out"))) == 8
    with pytest.raises(UserError, match="which is read"):
        transform(f"{folder}:train", folder, halve)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="contains other files than a dataset"):
        transform(folder, tmp_path / "out", halve)
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_an_id_given_twice_is_refused_across_splits(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "set") as writer:
        writer.add(make(1))
        with pytest.raises(UserError, match="'demo/1' is given twice"):
            writer.add(make(1), "validation")
    assert list(open_problems(tmp_path / "set")) == [make(1)]


KILLED = """
import os, signal, sys
from pathlib import Path
from whetstone.data.dataset import DatasetWriter
from whetstone.core.problem import Problem, StdinCase, StdinTests
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
with DatasetWriter(Path(sys.argv[1])) as writer:
    writer.add(Problem("a", "s", StdinTests([StdinCase("", "1")])))
    os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_writer_leaves_the_old_dataset_and_the_next_one_removes_its_rest(
    number: int, folder: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), str(int(number))]
    done = subprocess.run(command, capture_output=True, env=os.environ, timeout=1200)
    assert done.returncode != 0
    assert len(list(open_problems(folder))) == 8
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith(".set.")]
    assert len(left) == (1 if number == signal.SIGKILL else 0)
    with DatasetWriter(folder) as writer:
        writer.add(make(1))
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def append(file: Path, decisions: list[ProblemDecision]) -> None:
    with DecisionLog(file) as log:
        for decision in decisions:
            log.add(decision)


def test_a_torn_decision_does_not_count_and_is_removed_before_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "d.jsonl"
    rows = [ProblemDecision(f"p/{n}", "validate", "keep", "ok", "x" * 70_000) for n in range(3)]
    append(file, rows)
    whole = file.read_bytes()
    file.write_bytes(whole[:-20_000])
    assert [d.problem_id for d in read_decisions(file)] == ["p/0", "p/1"]
    append(file, rows[2:])
    assert file.read_bytes() == whole
    file.write_bytes(whole + b"{}\n")
    with pytest.raises(UserError, match=r"d\.jsonl, line 4: not a decision"):
        list(read_decisions(file))


def test_a_decision_about_text_that_utf8_cannot_hold_is_still_a_row(tmp_path: Path) -> None:
    append(tmp_path / "d.jsonl", [ProblemDecision("p/\ud800", "import", "drop", "broken", "\udc00!")])
    assert json.loads((tmp_path / "d.jsonl").read_text())["detail"] == "?!"


def test_how_cases_are_scored_survives_parquet(tmp_path: Path) -> None:
    groups = Scoring("groups", [CaseGroup([0], 2.0)])
    scored = Problem("a", "s", StdinTests([StdinCase("", "1")]), scoring=groups)
    write_problems(tmp_path / "p.parquet", [scored])
    assert list(read_problems(tmp_path / "p.parquet")) == [scored]


def test_shipped_and_generated_sets_are_loaded_by_name() -> None:
    parts = load_problems("builtin:train") + load_problems("builtin:heldout")
    assert load_problems("builtin:all") == parts
    train, heldout = ({p.id for p in load_problems(f"micro:{split}")} for split in ("train", "heldout"))
    assert train
    assert heldout
    assert not train & heldout


def test_a_subset_is_decided_by_its_seed_and_keeps_the_order(tmp_path: Path) -> None:
    problems = [make(number) for number in range(50)]
    first = subset(problems, 10, seed=1)
    assert len({p.id for p in first}) == 10
    assert [p for p in problems if p in first] == first
    assert subset(problems, 10, seed=1) == first != subset(problems, 10, seed=2)
    assert subset(problems, 0, seed=1) == subset(problems, 99, seed=1) == problems
    write_problems(tmp_path / "p.jsonl", problems)
    assert load_problems(str(tmp_path / "p.jsonl"), max_problems=10, seed=1) == first


def test_unknown_missing_and_empty_sets_are_refused(tmp_path: Path) -> None:
    write_problems(tmp_path / "p.jsonl", [])
    unknown = ("builtin:trian", "builtin:trainn", "builtin-train")
    for name, words in (
        *((name, r"did you mean `builtin:train`\?") for name in unknown),
        ("nowhere/problems.jsonl", "no such file"),
        (str(tmp_path / "p.jsonl"), "the file is empty"),
    ):
        with pytest.raises(UserError, match=words):
            load_problems(name)
