"""``whetstone train`` of a recipe with a flow starts all roles, and keeps them going whichever is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.run.roles_by_hand import CHEAPER, process_of, until, write_async_recipe
from tests.run.tiny_recipe import check_ledger, finished, record_count, start, timeless, write_recipe
from whetstone.report.metrics import read_metrics

pytestmark = pytest.mark.slow


def test_all_roles_are_started_and_each_is_started_again_when_it_is_killed(tmp_path: Path) -> None:
    finished(write_recipe(tmp_path), tmp_path / "alone", *CHEAPER)
    out = tmp_path / "run"
    metrics = out / "metrics.jsonl"
    gpus = "flow.gpus={replicas: ['5'], trainers: ['6']}"  # of which a run on the CPU needs none
    with start(write_async_recipe(tmp_path), out, *CHEAPER, gpus) as train:
        for role, records in (("rollout", 2), ("flow", 3), ("trainer", 4)):
            until(lambda least=records: record_count(out) >= least, f"{records} records", train)
            process = process_of(train.pid, role)
            words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
            seen = words[words.index("--gpus") + 1] if "--gpus" in words else None
            assert seen == {"rollout": "5", "trainer": "6"}.get(role)
            os.kill(process, signal.SIGKILL)
        assert train.wait() == 0, train.printed() + train.printed("err")
        said = train.printed()
    for name in ("rollout-0", "flow", "trainer"):
        assert f"{name} ended by SIGKILL; restarting (1 of 5)" in said
    assert timeless(out / "metrics.jsonl") == timeless(tmp_path / "alone" / "metrics.jsonl")
    check_ledger(metrics)


def test_sampling_ahead_accounts_for_every_token_through_kills(tmp_path: Path) -> None:
    out = tmp_path / "run"
    metrics = out / "metrics.jsonl"
    ahead = ("flow.staleness=2", "flow.replicas=2", "deterministic=false", "trainer.steps=8")
    with start(write_async_recipe(tmp_path), out, *CHEAPER, *ahead) as train:
        for role, records in (("rollout", 2), ("flow", 3), ("trainer", 5), ("rollout", 6)):
            until(lambda least=records: record_count(out) >= least, f"{records} records", train)
            os.kill(process_of(train.pid, role), signal.SIGKILL)
        assert train.wait() == 0, train.printed() + train.printed("err")
    tokens = check_ledger(metrics)
    # The trainer has returned from step 4 or later to its checkpoint after step 4.
    assert tokens["generated"] > tokens["trained"] > 0
    figures = [record for record in read_metrics(metrics) if record["kind"] == "train"][-1]
    assert 0 <= figures["staleness/token_age"] <= figures["staleness/max"] <= 2
    assert 0 <= figures["staleness/wasted"] < 1
    assert 0 <= figures["staleness/length_shift"] < 1
