"""TensorBoard: event files in the folder of the run, rewritten at every start. pip install tensorboard."""

from __future__ import annotations

import shutil
from importlib import import_module
from typing import Any

from whetstone.report.sinks.sink import MetricRow, SinkRun


class TensorBoard:
    """See ``Sink``."""

    remembers = False

    def __init__(self, run: SinkRun) -> None:
        # Old files are deleted: steps that a resumed run repeats would appear twice.
        shutil.rmtree(run.folder, ignore_errors=True)
        self._writer: Any = import_module("tensorboard.summary").Writer(str(run.folder))

    def show(self, row: MetricRow) -> None:
        """Show one row."""
        for name, value in row.numbers.items():
            self._writer.add_scalar(name, value, row.step, wall_time=row.at)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
