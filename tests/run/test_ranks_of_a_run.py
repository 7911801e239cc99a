"""A run of two processes under torchrun is the run that one process makes, and fails as one."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.run.ranks_compared import movement, replies
from tests.run.tiny_recipe import command, finished
from tests.trainer.rank_processes import free_port
from tests.warm_command import WarmCommand

pytestmark = pytest.mark.process

SHORT = ("evaluation.n=1", "evaluation.k=[1]", "evaluation.every=100")
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def torchrun(recipe: Path, out: Path, *overrides: str, ranks: int = 2) -> list[str]:
    """The command that a person would type, without the word ``torchrun``."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*launcher, *command(recipe, out, *overrides)[1:]]


def run_ranks(recipe: Path, out: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        torchrun(recipe, out, *overrides), capture_output=True, text=True, timeout=1500, env=ONE_THREAD
    )


@pytest.mark.extended
def test_two_ranks_then_one_make_the_run_of_one(recipe: Path, tmp_path: Path) -> None:
    keep = (*SHORT, "trainer.keep_checkpoints=9", "algorithm.kl_coef=0.01")
    one, two = tmp_path / "one", tmp_path / "two"
    finished(recipe, one, *keep, "trainer.steps=4")
    begun = run_ranks(recipe, two, *keep, "trainer.steps=2")
    assert begun.returncode == 0, begun.stderr
    assert begun.stdout.count("step    2/2") == 1
    resumed = finished(recipe, two, *keep, "trainer.steps=4")
    assert "from step 2" in resumed.stdout
    assert replies(two) == replies(one)
    last, start = Path("checkpoints/step-4"), one / "checkpoints" / "step-0"
    assert movement(one / last, two / last, start) < 1e-3


@pytest.mark.extended
def test_a_control_arm_of_two_ranks_is_that_of_one(recipe: Path, tmp_path: Path) -> None:
    arm = ("algorithm={preset: ssd}", "sampling.temperature=1.3", "trainer.steps=3")
    apart = (*SHORT, "evaluation.process=separate", "trainer.checkpoint_every=100")
    one, two = tmp_path / "one", tmp_path / "two"
    finished(recipe, one, *SHORT, *arm)
    together = run_ranks(recipe, two, *apart, *arm)
    assert together.returncode == 0, together.stderr
    assert replies(two) == replies(one)
    last = Path("checkpoints/step-3")
    assert movement(one / last, two / last, one / "start") < 1e-3


@pytest.mark.slow
def test_stages_follow_each_other_on_two_ranks_as_on_one(recipe: Path, tmp_path: Path) -> None:
    stages = "stages=[{name: short, trainer: {steps: 2}}, {name: long, trainer: {steps: 3}}]"
    one, two = tmp_path / "one", tmp_path / "two"
    finished(recipe, one, *SHORT, stages)
    together = run_ranks(recipe, two, *SHORT, stages)
    assert together.returncode == 0, together.stderr
    for stage, last in (("1-short", "step-2"), ("2-long", "step-3")):
        assert replies(two / stage) == replies(one / stage)
        ends = [out / stage / "checkpoints" / last for out in (one, two)]
        assert movement(ends[0], ends[1], one / "1-short" / "checkpoints" / "step-0") < 1e-3
    again = run_ranks(recipe, two, *SHORT, stages)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("is done") == 2


@pytest.mark.parametrize(
    ("override", "refusal"),
    [
        ("trainer.prompts_per_step=3", "`trainer.prompts_per_step` is 3, which 2 ranks cannot share equally"),
        ("algorithm={preset: ssd}", "set `evaluation.process: separate`"),
    ],
)
def test_several_ranks_refuse_a_recipe_once(
    override: str, refusal: str, recipe: Path, tmp_path: Path
) -> None:
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    arguments = ("train", str(recipe), f"out={tmp_path / 'run'}", override)
    with ExitStack() as open_until_end:
        ranks = [
            open_until_end.enter_context(
                WarmCommand(*arguments, environment={**place, "RANK": rank, "LOCAL_RANK": rank})
            )
            for rank in "01"
        ]
        assert all(rank.wait() != 0 for rank in ranks)
        said = "".join(rank.printed("err") for rank in ranks)
    assert said.count(refusal) == 1
    assert not (tmp_path / "run").exists()
