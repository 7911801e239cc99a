"""``engine.placement: shared``: the server sleeps while the trainer works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.run.tiny_recipe import run, write_recipe
from tests.served_stand_in import StandIn, listening

pytestmark = pytest.mark.process

SHARED = ("engine.kind=vllm", "engine.placement=shared")


@pytest.mark.extended
def test_a_run_lets_the_server_sleep_once_a_step_and_wakes_it_with_the_new_weights(tmp_path: Path) -> None:
    with listening(StandIn("vllm")) as server:
        done = run(
            write_recipe(tmp_path),
            tmp_path / "run",
            *SHARED,
            f"engine.options.url={server.url}",
            "deterministic=false",
            # Each reply is wrong and as long as any other: nothing is learned from what is no model.
            "algorithm.drop_zero_variance=true",
            "trainer.steps=3",
        )
    assert done.returncode == 0, done.stderr
    assert server.faults == []
    told = re.sub(r"prompt \d+|load -?\d+|forget", "", " ".join(server.log)).split()
    first = ["pause", "resume"]  # the run's first weights, before its first reply
    step = ["pause", "sleep", "wake", "weights", "wake", "kv_cache", "resume"]
    assert told == first + step * 3
