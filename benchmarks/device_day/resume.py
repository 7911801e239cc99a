"""A run that is killed and started again: the time until it goes on, and the steps that it makes twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.device_day.context import SectionContext
from whetstone.report.metrics import read_metrics

_STEPS, _CHECKPOINT_EVERY = 9, 4
# It is killed once this step is recorded, so that some steps are made twice.
_KILLED_AFTER = 6
_POLL_S = 0.02
_ENDED = "`whetstone train` ended with status {}; see the log"
_RECIPE = Path(__file__).parents[2] / "recipes" / "tiny.yaml"
_SMALLER = (
    "warmup.steps=30",
    f"trainer.steps={_STEPS}",
    f"trainer.checkpoint_every={_CHECKPOINT_EVERY}",
    "trainer.prompts_per_step=4",
    "trainer.samples_per_prompt=4",
    # A model this weak solves nothing, but learns from the penalty on long replies.
    "algorithm.drop_zero_variance=false",
    "algorithm.overlong_buffer=32",
    "data.heldout=null",
    "evaluation.train_problems=0",
)


def measure_resume(context: SectionContext) -> None:
    """Record the figures of a deterministic run; of another one if the device cannot compute that."""
    for deterministic in (True, False):
        with context.attempt(deterministic=deterministic):
            _measure(context, deterministic=deterministic)
            return


def _measure(context: SectionContext, *, deterministic: bool) -> None:
    out = context.scratch / f"resume-{deterministic}"
    first = _start(context, out, deterministic)
    _wait_for(first, out, lambda record: record["step"] >= _KILLED_AFTER)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = _train_records(out)
    began, clock = time.time(), time.monotonic()
    second = _start(context, out, deterministic)
    _wait_for(second, out, lambda record: record["time"]["at"] > began)
    until_step = time.monotonic() - clock
    if second.wait() != 0:
        raise RuntimeError(_ENDED.format(second.returncode))
    after = _train_records(out)
    repeated = [step for step in before if after[step] != before[step]]
    pairs = [(_timeless(before[step]), _timeless(after[step])) for step in repeated]
    context.record(
        deterministic=deterministic,
        **{"killed after step": max(before), "seconds until the next step": until_step},
        **{"steps": len(after), "steps made twice": len(repeated)},
        **{"equal metrics of both": all(old == new for old, new in pairs)},
        **{
            "largest difference of a loss": max(
                abs(old["loss/loss"] - new["loss/loss"]) for old, new in pairs
            )
        },
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
    return subprocess.Popen(command)


def _wait_for(
    process: subprocess.Popen[bytes], folder: Path, wanted: Callable[[dict[str, Any]], bool]
) -> None:
    """Wait for the record of a training step. Raises RuntimeError if the run ends before."""
    while not any(wanted(record) for record in _train_records(folder).values()):
        if process.poll() is not None:
            raise RuntimeError(_ENDED.format(process.returncode))
        time.sleep(_POLL_S)


def _train_records(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the record of each step so far; raises ValueError if a step has two."""
    path = folder / "metrics.jsonl"
    records = [record for record in read_metrics(path) if record["kind"] == "train"] if path.exists() else []
    found = {int(record["step"]): record for record in records}
    if len(found) != len(records):
        raise ValueError("a step is recorded twice")
    return found


def _timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "time"}
