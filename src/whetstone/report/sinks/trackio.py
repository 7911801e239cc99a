"""trackio: one run, which is continued at every start. pip install trackio."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from whetstone.report.sinks.sink import MetricRow, SinkRun, own_id


class Trackio:
    """See ``Sink``. trackio identifies runs by their names, so the name ends with an id."""

    remembers = True

    def __init__(self, run: SinkRun) -> None:
        name = f"{run.name}-{own_id(run.folder)}"
        self._run: Any = import_module("trackio").init(
            project=run.project, name=name, resume="allow", embed=False
        )

    def show(self, row: MetricRow) -> None:
        """Show one row."""
        self._run.log(row.numbers, step=row.step)

    def close(self) -> None:
        """Send the remaining rows."""
        self._run.finish()
