"""Starts evaluation in a separate process, waits for it at the end, and ends it.

The process is ``whetstone eval watch`` in a new interpreter, so no torch state is forked. Its output goes to
``logs/evaluation.log``. A failure is reported and does not end the run.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from whetstone.evaluate.settings import EvaluationSection
from whetstone.report.metrics import Record, read_metrics
from whetstone.run.display import Display
from whetstone.run.evaluations import records_file

_POLL_S = 0.2
_TERMINATE_S = 10.0


class SeparateEvaluation:
    """A context manager. The process ends with it, and also if this process is killed."""

    def __init__(self, run: Path, settings: EvaluationSection, display: Display, *, gpus: str = "") -> None:
        """``gpus``: the devices that the process sees, as in CUDA_VISIBLE_DEVICES; empty: those of this
        process."""
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

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            # SIGTERM lets it finish its current line. It resumes at the next start of the run.
            self._process.terminate()
            try:
                self._process.wait(_TERMINATE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    async def wait_for(self, step: int) -> None:
        """Wait until the checkpoint of ``step`` is evaluated, the process has ended, or the wait is too
        long."""
        start = time.monotonic()
        self._display.begin(f"waiting for the evaluation of step {step}", 1)
        while self._process.poll() is None:
            if time.monotonic() - start > self._settings.wait_s:
                self._display.log(
                    f"the evaluation of step {step} was not done within `evaluation.wait_s` = "
                    f"{self._settings.wait_s:g} s; `whetstone eval watch {self._run}` continues it"
                )
                return
            await asyncio.sleep(_POLL_S)
        if self.record(step) is None:
            self._display.log(
                f"the evaluation process ended with status {self._process.returncode} before it finished "
                f"step {step}; see {self._log}. `whetstone eval watch {self._run}` continues it"
            )
        else:
            self._display.end()

    def record(self, step: int) -> Record | None:
        """Return the latest record of a step, or None."""
        file = records_file(self._run)
        found = [r for r in read_metrics(file) if r["step"] == step] if file.exists() else []
        return found[-1] if found else None
