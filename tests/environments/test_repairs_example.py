"""The example of one-line repairs: its set, and its recipe on some tasks of it."""

from __future__ import annotations

import random
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments.repositories import play, section
from tests.judge.repository_tasks import pytest_environment
from whetstone.cli.main import main
from whetstone.core.verdict import Verdict
from whetstone.data.dataset import open_problems
from whetstone.evaluate.results import load_evaluation
from whetstone.judge.repository.base import read_base
from whetstone.judge.repository.grader import RepositoryGrader
from whetstone.judge.repository.task import base_archive, read_tasks

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).parents[2] / "examples" / "repairs"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The folders of a set that the example made, and of its environment of packages."""
    with pytest_environment() as packages, pytest.MonkeyPatch.context() as patch:
        # A workspace has a /tmp of its own, which hides what is below ours.
        patch.setattr("tempfile.tempdir", "/var/tmp")
        folder = tmp_path_factory.mktemp("repairs")
        words = [str(folder), "--train", "12", "--heldout", "6", "--environment", str(packages)]
        patch.setattr("sys.argv", ["make_repairs.py", *words])
        runpy.run_path(str(EXAMPLE / "make_repairs.py"), run_name="__main__")
        yield folder, packages


def test_one_line_is_wrong_and_the_statement_describes_the_right_one(made: tuple[Path, Path]) -> None:
    tasks = list(read_tasks(made[0]))
    assert len(tasks) == 18
    for task in tasks:
        [(file, right)] = task.reference.items()
        [(path, wrong)] = read_base(base_archive(made[0], task)).items()
        assert right is not None
        assert [file] == [path] == task.may_change
        described = task.statement.replace("times", "*").replace("plus", "+")
        lines, others = right.splitlines(), wrong.decode().splitlines()
        assert lines == ["def f(x):", f"    return {described}"]
        assert [a == b for a, b in zip(lines, others, strict=True)] == [True, False]


def test_the_hidden_tests_accept_the_right_line_only(made: tuple[Path, Path]) -> None:
    folder, packages = made
    with RepositoryGrader(str(packages)) as grader:
        for task in list(read_tasks(folder))[:3]:
            assert task.sealed
            base = read_base(base_archive(folder, task))
            [(file, right)] = task.reference.items()
            assert right is not None
            changes = [{}, {file: right.encode()}, {file: right.replace("+", "-").encode()}]
            verdicts = [grader.grade(task, base, change).verdict for change in changes]
            assert verdicts == [Verdict.WRONG_ANSWER, Verdict.ACCEPTED, Verdict.WRONG_ANSWER]


def test_the_splits_share_no_statement_and_a_demonstration_solves_its_task(made: tuple[Path, Path]) -> None:
    train, heldout = (list(open_problems(f"{made[0]}:{split}")) for split in ("train", "validation"))
    assert (len(train), len(heldout)) == (12, 6)
    assert not {each.statement for each in train} & {each.statement for each in heldout}
    settings = section(made[1], chat=False, describe_tools=False, calls=3)
    shown = settings.build().demonstration(heldout[0], random.Random(0))
    assert shown is not None
    sample = play(settings, heldout[0], *(text for role, text in shown if role == "assistant"))
    assert (sample.accepted, sample.metrics["submitted"], sample.metrics["turns"]) == (True, 1.0, 3.0)


@pytest.mark.extended
def test_the_recipe_runs(made: tuple[Path, Path], tmp_path: Path) -> None:
    folder, packages = made
    values = [
        f"out={tmp_path / 'run'}",
        f"data.train={folder}:train",
        f"data.heldout={folder}:validation",
        f"environment.options.packages={packages}",
        "model.scratch.hidden_size=32",
        "model.scratch.layers=1",
        "model.threads=1",
        "warmup.steps=4",
        "trainer={steps: 1, prompts_per_step: 2, samples_per_prompt: 2, checkpoint_every: 1}",
        "evaluation={every: 1, n: 1, k: [1], train_problems: 0}",
    ]
    assert main(["train", str(EXAMPLE / "repairs.yaml"), *values]) == 0
    for step in (0, 1):
        evaluation = load_evaluation(tmp_path / "run" / "evaluations" / f"step-{step}-heldout")
        assert len(evaluation.values("pass@1")) == 6
