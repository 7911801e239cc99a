"""A trainer of two ranks makes, of a flow's batches, the run that one process makes; ended, it goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.run.ranks_compared import movement, replies
from tests.run.roles_by_hand import process_of, until, write_async_recipe
from tests.run.tiny_recipe import finished, record_count, start, write_recipe
from whetstone.core.errors import INTERRUPTED

UNMEASURED = ("data.heldout=null", "evaluation.train_problems=0", "trainer.keep_checkpoints=9")
TWO = "flow.ranks=2"


def is_the_run_of_one(two: Path, one: Path) -> None:
    assert replies(two) == replies(one)
    last, start = Path("checkpoints/step-5"), one / "checkpoints" / "step-0"
    assert movement(one / last, two / last, start) < 1e-3


def second_rank(train: int) -> int:
    """The process that the trainer of ``whetstone train`` has started; 0 while there is none."""
    try:
        return process_of(process_of(train, "trainer"), "trainer", "policy")
    except (AssertionError, OSError):
        return 0


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    finished(write_recipe(folder), folder / "run", *UNMEASURED)
    return folder / "run"


@pytest.mark.extended
@pytest.mark.process
def test_two_ranks_of_a_flows_trainer_make_the_run_of_one(one: Path, tmp_path: Path) -> None:
    two = tmp_path / "run"
    made = finished(write_async_recipe(tmp_path), two, *UNMEASURED, TWO)
    assert made.stdout.count("trainer   | step    5/5") == 1
    assert "delta" in made.stdout
    is_the_run_of_one(two, one)


@pytest.mark.slow
def test_a_trainer_with_a_killed_rank_is_restarted(one: Path, tmp_path: Path) -> None:
    two = tmp_path / "run"
    with start(write_async_recipe(tmp_path), two, *UNMEASURED, TWO) as train:
        # Before the ranks have met, and in the middle of their work.
        for records in (0, 2):
            until(
                lambda least=records: record_count(two) >= least and second_rank(train.pid) > 0,
                "a rank",
                train,
            )
            os.kill(second_rank(train.pid), signal.SIGKILL)
        assert train.wait() == 0, train.printed() + train.printed("err")
        said = train.printed()
    assert said.count("rank 1 of the trainer was ended by SIGKILL") == 2
    assert "trainer ended with status 1; restarting (2 of 5)" in said
    is_the_run_of_one(two, one)


@pytest.mark.slow
def test_told_to_end_it_drains_and_the_same_command_goes_on(one: Path, tmp_path: Path) -> None:
    two, recipe = tmp_path / "run", write_async_recipe(tmp_path)
    with start(recipe, two, *UNMEASURED, TWO) as train:
        until(lambda: record_count(two) >= 2, "two records", train)
        os.kill(train.pid, signal.SIGINT)
        assert train.wait() == INTERRUPTED, train.printed() + train.printed("err")
        said = train.printed()
    assert said.count("draining: a checkpoint of the last complete step will be saved") == 1
    assert "started again" not in said
    again = finished(recipe, two, *UNMEASURED, TWO)
    assert "resuming" in again.stdout
    is_the_run_of_one(two, one)
