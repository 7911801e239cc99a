"""Training's side of evaluation in a process of its own: started, waited for at the end, ended.

The process is ``whetstone eval watch`` in a fresh interpreter: nothing of torch is forked. What it says goes
to ``logs/evaluation.log``; a failure is shown and does not end the run.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from whetstone.evaluate.settings import EvaluationSection
from whetstone.launch.display import Display
from whetstone.launch.evaluations import pins_folder, records_file
from whetstone.launch.pins import Pins
from whetstone.report.metrics import Record, read_metrics

_LOOK_EVERY_S = 0.2
_END_WITHIN_S = 10.0


class SeparateEvaluation:
    """A context manager: the process lives no longer than it, nor than this process, which may be killed."""

    def __init__(self, run: Path, settings: EvaluationSection, display: Display, *, gpus: str = "") -> None:
        """``gpus``: the devices that it sees, as in CUDA_VISIBLE_DEVICES; empty: those of this process."""
        self._run = run
        self._settings = settings
        self._display = display
        self._gpus = gpus
        self._log = run / "logs" / "evaluation.log"

    def __enter__(self) -> SeparateEvaluation:
        self._log.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "whetstone", "eval", "watch", str(self._run)]
        command += ["--threads", str(self._settings.threads), "--parent", str(os.getpid())]
        environment = os.environ | ({"CUDA_VISIBLE_DEVICES": self._gpus} if self._gpus else {})
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        return self

    def hold(self, last_step: int) -> None:
        """Link the checkpoints that are to be evaluated, before training removes them."""
        Pins(
            self._run / "checkpoints",
            pins_folder(records_file(self._run)),
            lambda step, _: self._settings.due(step, last=step == last_step) and self.record(step) is None,
        ).look()

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    async def finish(self, step: int) -> None:
        """Wait until the checkpoint of ``step`` is evaluated, the process has ended, or the time is up."""
        start = time.monotonic()
        self._display.begin(f"waiting for the evaluation of step {step}", 1)
        while self._process.poll() is None:
            if time.monotonic() - start > self._settings.wait_s:
                self._display.say(
                    f"the evaluation of step {step} was not done within `evaluation.wait_s` = "
                    f"{self._settings.wait_s:g} s; `whetstone eval watch {self._run}` goes on with it"
                )
                return
            await asyncio.sleep(_LOOK_EVERY_S)
        if self.record(step) is None:
            self._display.say(
                f"the process that evaluates ended with status {self._process.returncode} before it had done "
                f"step {step}; {self._log} says why, and `whetstone eval watch {self._run}` goes on with it"
            )
        else:
            self._display.end()

    def record(self, step: int) -> Record | None:
        """The newest record of a step, or None."""
        file = records_file(self._run)
        found = [r for r in read_metrics(file) if r["step"] == step] if file.exists() else []
        return found[-1] if found else None
