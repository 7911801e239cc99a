"""Weights & Biases: one run, which is continued at every start. pip install wandb."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from whetstone.report.sinks.sink import MetricRow, SinkRun, own_id


class WeightsAndBiases:
    """See ``Sink``. The step is a number of its row, because an evaluation may be recorded after later steps.

    Offline, wandb writes rarely, and a killed run leaves almost nothing. Its folder is then written again.
    """

    def __init__(self, run: SinkRun) -> None:
        self._run: Any = import_module("wandb").init(
            project=run.project, name=run.name, id=own_id(run.folder), dir=str(run.folder), resume="allow"
        )
        # An offline run cannot be continued, so it gets all rows again.
        self.remembers = not self._run.offline
        if not self.remembers:
            for old in (run.folder / "wandb").glob("offline-run-*"):
                if old.resolve() != Path(self._run.dir).resolve().parent:
                    shutil.rmtree(old, ignore_errors=True)
        for kind in ("train", "eval", "warmup"):
            self._run.define_metric(f"{kind}/*", step_metric=f"{kind}/step")

    def show(self, row: MetricRow) -> None:
        """Show one row."""
        self._run.log({**row.numbers, f"{row.kind}/step": row.step})

    def close(self) -> None:
        """Send the remaining rows."""
        self._run.finish()
