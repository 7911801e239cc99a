"""``engine.placement: shared``: the server sleeps while the trainer works, and what it cannot be with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.run.tiny_recipe import run, write_recipe
from tests.served_stand_in import StandIn, listening
from whetstone.core.errors import UserError
from whetstone.run.recipe import load_recipe

pytestmark = pytest.mark.process

SHARED = ("engine.kind=vllm", "engine.placement=shared")


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


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("engine.placement=shared",), r"`engine\.placement: shared` is for sglang and vllm; `torch` runs"),
        ((*SHARED, "flow={}"), r"with `flow` both run concurrently: set it to `apart`"),
        (
            (*SHARED, "environment.kind=codegen_verifier", "verifier={}"),
            r"two models cannot have `engine\.placement: shared`",
        ),
        (("engine.placement=beside",), r"engine\.placement"),
    ],
)
def test_what_it_cannot_be_with_is_refused(tmp_path: Path, overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_recipe(write_recipe(tmp_path), overrides)
