"""``whetstone train`` of a recipe with a flow starts all roles, and keeps them going whichever is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.run.roles_by_hand import CHEAPER, process_of, until, write_async_recipe
from tests.run.tiny_recipe import check_ledger, run, start, timeless, write_recipe
from whetstone.report.metrics import read_metrics

pytestmark = pytest.mark.slow


def test_all_roles_are_started_and_each_is_started_again_when_it_is_killed(tmp_path: Path) -> None:
    alone = run(write_recipe(tmp_path), tmp_path / "alone", *CHEAPER)
    assert alone.returncode == 0, alone.stderr
    metrics = tmp_path / "run" / "metrics.jsonl"
    gpus = "flow.gpus={replicas: ['5'], trainers: ['6']}"  # of which a run on the CPU needs none
    with start(write_async_recipe(tmp_path), tmp_path / "run", *CHEAPER, gpus) as train:
        for role, records in (("rollout", 2), ("flow", 3), ("trainer", 4)):
            until(
                lambda records=records: metrics.exists() and metrics.read_bytes().count(b"\n") >= records,
                f"{records} records",
                train,
            )
            process = process_of(train.pid, role)
            words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
            seen = words[words.index("--gpus") + 1] if "--gpus" in words else None
            assert seen == {"rollout": "5", "trainer": "6"}.get(role)
            os.kill(process, signal.SIGKILL)
        assert train.wait() == 0, train.printed() + train.printed("err")
        said = train.printed()
    for name in ("rollout-0", "flow", "trainer"):
        assert f"{name} ended by SIGKILL; restarting (1 of 5)" in said
    assert timeless(metrics) == timeless(tmp_path / "alone" / "metrics.jsonl")
    check_ledger(metrics)


def test_sampling_ahead_accounts_for_every_token_through_kills(tmp_path: Path) -> None:
    metrics = tmp_path / "run" / "metrics.jsonl"
    ahead = ("flow.staleness=2", "flow.replicas=2", "deterministic=false", "trainer.steps=8")
    with start(write_async_recipe(tmp_path), tmp_path / "run", *CHEAPER, *ahead) as train:
        for role, records in (("rollout", 2), ("flow", 3), ("trainer", 5), ("rollout", 6)):
            until(
                lambda records=records: metrics.exists() and metrics.read_bytes().count(b"\n") >= records,
                f"{records} records",
                train,
            )
            os.kill(process_of(train.pid, role), signal.SIGKILL)
        assert train.wait() == 0, train.printed() + train.printed("err")
    tokens = check_ledger(metrics)
    # The trainer has returned from step 4 or later to its checkpoint after step 4.
    assert tokens["generated"] > tokens["trained"] > 0
    figures = [record for record in read_metrics(metrics) if record["kind"] == "train"][-1]
    assert 0 <= figures["staleness/token_age"] <= figures["staleness/max"] <= 2
    assert 0 <= figures["staleness/wasted"] < 1
    assert 0 <= figures["staleness/length_shift"] < 1


def test_ctrl_c_drains_and_the_same_command_goes_on(tmp_path: Path) -> None:
    recipe, metrics = write_async_recipe(tmp_path), tmp_path / "run" / "metrics.jsonl"
    alone = run(write_recipe(tmp_path), tmp_path / "alone", *CHEAPER)
    assert alone.returncode == 0, alone.stderr
    with start(recipe, tmp_path / "run", *CHEAPER) as train:
        until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 2, "two records", train)
        os.kill(train.pid, signal.SIGINT)
        assert train.wait() == 130
        assert "draining: a checkpoint of the last complete step will be saved" in train.printed()
    again = run(recipe, tmp_path / "run", *CHEAPER)
    assert again.returncode == 0, again.stderr
    assert timeless(metrics) == timeless(tmp_path / "alone" / "metrics.jsonl")
