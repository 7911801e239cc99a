"""A run that is killed and started again, against the same run without a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.device_day.context import SectionContext
from whetstone.report.metrics import read_metrics

_STEPS, _CHECKPOINT_EVERY = 12, 4
# It is killed once this step is recorded, so that some steps are made twice.
_KILLED_AFTER = 6
_POLL_S = 0.02
_RECIPE = Path(__file__).parents[2] / "recipes" / "tiny.yaml"
_SMALLER = (
    "warmup.steps=30",
    f"trainer.steps={_STEPS}",
    f"trainer.checkpoint_every={_CHECKPOINT_EVERY}",
    "trainer.prompts_per_step=4",
    "trainer.samples_per_prompt=4",
    f"evaluation.every={_STEPS}",
    "evaluation.n=1",
    "evaluation.k=[1]",
    "evaluation.train_problems=4",
)


def measure_resume(context: SectionContext) -> None:
    """Record the figures of a deterministic run; of another one if the device cannot compute that."""
    for deterministic in (True, False):
        with context.attempt(deterministic=deterministic):
            _measure(context, deterministic=deterministic)
            return


def _measure(context: SectionContext, *, deterministic: bool) -> None:
    folder = context.scratch / f"resume-{deterministic}"
    whole, killed = folder / "whole", folder / "killed"
    _end(_start(context, whole, deterministic))
    first = _start(context, killed, deterministic)
    _wait_for(first, killed, lambda record: record["step"] >= _KILLED_AFTER)
    first.send_signal(signal.SIGKILL)
    first.wait()
    seen = max(_train_records(killed))
    began, clock = time.time(), time.monotonic()
    second = _start(context, killed, deterministic)
    _wait_for(second, killed, lambda record: record["time"]["at"] > began)
    until_step = time.monotonic() - clock
    _end(second)
    expected, found = _train_records(whole), _train_records(killed)
    losses = [
        abs(found[step]["loss/loss"] - expected[step]["loss/loss"]) for step in found if step in expected
    ]
    equal = all(_timeless(found.get(step)) == _timeless(expected[step]) for step in expected)
    context.record(
        deterministic=deterministic,
        **{"killed after step": seen, "seconds until the next step": until_step},
        **{"steps recorded once": sorted(found) == [*range(1, 1 + _STEPS)]},
        **{"metrics equal those without a kill": equal, "largest difference of a loss": max(losses)},
    )


def _start(context: SectionContext, out: Path, deterministic: bool) -> subprocess.Popen[bytes]:
    on_cpu = context.device.type == "cpu"
    overrides = [
        *_SMALLER,
        f"out={out}",
        f"deterministic={str(deterministic).lower()}",
        f"model.device={context.device.type}",
        f"model.dtype={'float32' if on_cpu else 'bfloat16'}",
    ]
    command = [sys.executable, "-m", "whetstone", "train", str(_RECIPE), *overrides]
    # Deterministic products of CUDA need this setting.
    return subprocess.Popen(command, env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8", **os.environ})


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.wait() != 0:
        raise RuntimeError(f"`whetstone train` ended with status {process.returncode}; see the log")


def _wait_for(
    process: subprocess.Popen[bytes], folder: Path, wanted: Callable[[dict[str, Any]], bool]
) -> None:
    """Wait for the record of a training step. Raises RuntimeError if the run ends before."""
    while not any(wanted(record) for record in _train_records(folder).values()):
        if process.poll() is not None:
            raise RuntimeError(f"`whetstone train` ended with status {process.returncode}; see the log")
        time.sleep(_POLL_S)


def _train_records(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the record of each step so far; raises ValueError if a step has two."""
    path = folder / "metrics.jsonl"
    records = [record for record in read_metrics(path) if record["kind"] == "train"] if path.exists() else []
    found = {int(record["step"]): record for record in records}
    if len(found) != len(records):
        raise ValueError("a step is recorded twice")
    return found


def _timeless(record: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (record or {}).items() if key != "time"}
