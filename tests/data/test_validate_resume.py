"""A validation that is killed goes on where it was, and ends with the result of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.data.clean_problems import problem, stdin
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program
from whetstone.data.decisions import read_decisions
from whetstone.data.files import read_problems, write_problems
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.validator import ValidationOutcome, digest_of
from whetstone.data.validate.whole_set import ValidationJournal, count_tests, journal_path, validate_set
from whetstone.judge import Judge, Judgement

COUNT = 45


def adding(number: int) -> Problem:
    """Every third has a reference that fails."""
    right = number if number % 3 else number + 1
    cases = [(f"{n}\n", f"{n + number}\n") for n in range(1, 6)]
    return problem(f"add-{number}", f"Add {number} to n.", stdin(*cases), f"print(int(input()) + {right})\n")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_problems(tmp_path / "raw.jsonl", (adding(number) for number in range(1, COUNT + 1)))
    return tmp_path / "raw.jsonl"


class Counting:
    """A judge that counts what it is asked, and may interrupt."""

    def __init__(self, judge: Judge, interrupt_after: int = 10**9) -> None:
        self.judge_, self.asked, self.interrupt_after = judge, set[str](), interrupt_after

    def judge(self, problem: Problem, program: Program, **wishes: object) -> Judgement:
        self.asked.add(problem.id)
        if len(self.asked) > self.interrupt_after:
            raise KeyboardInterrupt
        return self.judge_.judge(problem, program, **wishes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=1) as judge:
        yield judge


def without_measurements(dataset: Path) -> list[Problem]:
    """What was kept, but for the seconds and bytes, which differ from run to run."""
    kept: list[Problem] = []
    for one in read_problems(dataset / "train.parquet"):
        facts = {k: v for k, v in one.meta["validation"].items() if k not in ("slowest_cpu_s", "peak_mb")}
        kept.append(msgspec.structs.replace(one, meta={**one.meta, "validation": facts}))
    return kept


def decisions_of(dataset: Path) -> list[tuple[str, str, str]]:
    return [(d.problem_id, d.action, d.reason) for d in read_decisions(dataset / "decisions.jsonl")]


@pytest.mark.extended
def test_a_validation_that_was_killed_ends_with_the_same_result(
    source: Path, tmp_path: Path, judge: Judge
) -> None:
    policy = Policy(mutants=2)
    whole, killed = tmp_path / "whole" / "out", tmp_path / "killed" / "out"
    validate_set(source, judge, policy, count_tests(source), out=whole, workers=1)
    command = [sys.executable, "-m", "whetstone", "data", "validate", str(source), "--out", str(killed)]
    kills = 0
    for enough in (2, 14):
        with subprocess.Popen(
            [*command, "--mutants", "2", "--workers", "1"], stderr=subprocess.DEVNULL
        ) as run:
            while run.poll() is None and lines(journal_path(killed)) < enough:
                time.sleep(0.01)
            os.kill(run.pid, signal.SIGKILL)
        kills += run.returncode == -signal.SIGKILL
        assert not killed.exists()
    assert kills == 2
    known = lines(journal_path(killed)) - 1
    counting = Counting(judge)
    counted, packages = count_tests(source), judge.environment
    tally = validate_set(source, counting, policy, counted, out=killed, workers=1, environment=packages)
    assert len(counting.asked) <= COUNT - known
    assert (tally.problems, tally.kept, tally.dropped) == (COUNT, COUNT - COUNT // 3, COUNT // 3)
    assert without_measurements(killed) == without_measurements(whole)
    assert decisions_of(killed) == decisions_of(whole)
    assert [path.name for path in killed.parent.iterdir()] == ["out"]


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def outcome(of: Problem) -> ValidationOutcome:
    return ValidationOutcome(of.id, digest_of(of))


def test_a_torn_line_and_a_changed_problem_end_the_journal(tmp_path: Path) -> None:
    path, policy, problems = tmp_path / "j.jsonl", Policy(), [adding(n) for n in range(1, 6)]
    with ValidationJournal(path, policy, 5) as journal:
        assert journal.earlier(problems[0]) is None
        for one in problems[:3]:
            journal.add(outcome(one))
    with path.open("ab") as file:
        file.write(b'{"problem_id":"made/add-4","dig')
    with ValidationJournal(path, policy, 5) as journal:
        assert journal.earlier(problems[0]) == outcome(problems[0])
        changed = msgspec.structs.replace(problems[1], statement="Something else.")
        assert journal.earlier(changed) is None
        assert journal.earlier(problems[2]) is None
        journal.add(outcome(changed))
    with ValidationJournal(path, policy, 5) as journal:
        assert journal.earlier(problems[0]) == outcome(problems[0])
        assert journal.earlier(changed) == outcome(changed)
        assert journal.earlier(problems[2]) is None


def test_a_run_with_other_settings_is_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    ValidationJournal(path, Policy(), 5).__exit__(None, None, None)
    for policy, count in ((Policy(mutants=1), 5), (Policy(), 6)):
        with pytest.raises(UserError, match="repeat the first command to resume it, or delete the file"):
            ValidationJournal(path, policy, count)


def test_two_runs_do_not_write_one_journal(tmp_path: Path) -> None:
    with (
        ValidationJournal(tmp_path / "j.jsonl", Policy(), 5),
        pytest.raises(UserError, match="another validation"),
    ):
        ValidationJournal(tmp_path / "j.jsonl", Policy(), 5)
