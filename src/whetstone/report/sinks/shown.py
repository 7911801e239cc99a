"""A writer of metrics.jsonl that also sends each new record to the sinks.

A sink that remembers gets each step of a kind once, even after a kill: ``views/shown.json`` has the last
steps. If a resumed run repeats steps, the file has the later records, and such a sink the earlier ones. A
sink that fails is closed with a message, and the run continues.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.outputs import write_file
from whetstone.report.metrics import MetricsWriter, read_metrics
from whetstone.report.settings import ReportSection
from whetstone.report.sinks.sink import MetricRow, Sink, SinkRun, row_of

# The classes of the sinks, by the name of the library and of the setting.
SINKS = {
    "tensorboard": "whetstone.report.sinks.tensorboard:TensorBoard",
    "wandb": "whetstone.report.sinks.wandb:WeightsAndBiases",
    "trackio": "whetstone.report.sinks.trackio:Trackio",
}


def check_views(settings: ReportSection) -> None:
    """Raise UserError if the library of a sink is not installed."""
    for name in _enabled_sinks(settings):
        if find_spec(name) is None:
            raise UserError(f"`report.{name}` needs a library that is not installed: pip install {name}")


class ShownMetrics(MetricsWriter):
    """See ``MetricsWriter``. Call ``show`` after the file was truncated for the resumed run."""

    def __init__(self, folder: Path, settings: ReportSection, name: str, say: Callable[[str], None]) -> None:
        super().__init__(folder / "metrics.jsonl")
        self._views, self._settings, self._name, self._say = folder / "views", settings, name, say
        self._open: dict[str, Sink] = {}
        self._last = _Last(self._views / "shown.json")

    def show(self) -> None:
        """Open the sinks and send them the missing records."""
        for name in _enabled_sinks(self._settings):
            with _FailureHandler(name, self._close_failed):
                module, _, kind = SINKS[name].partition(":")
                project = getattr(self._settings, name)
                run = SinkRun(self._name, self._views / name, project if isinstance(project, str) else "")
                self._open[name] = getattr(importlib.import_module(module), kind)(run)
        for record in read_metrics(self.path) if self._open else []:
            self._show(row_of(record))

    def write(self, record: Mapping[str, Any]) -> None:
        """See ``MetricsWriter``."""
        super().write(record)
        if self._open:
            self._show(row_of(dict(record)))

    def close(self) -> None:
        """Close the file and the sinks."""
        super().close()
        for name, sink in list(self._open.items()):
            with _FailureHandler(name, self._close_failed):
                sink.close()

    def _show(self, row: MetricRow) -> None:
        for name, sink in list(self._open.items()):
            if sink.remembers and row.step <= self._last.last_step(name, row.kind):
                continue
            with _FailureHandler(name, self._close_failed):
                if sink.remembers:  # stored first: a kill can lose a row, but not repeat one
                    self._last.store(name, row)
                sink.show(row)

    def _close_failed(self, name: str, error: Exception) -> None:
        self._open.pop(name, None)
        self._say(f"`report.{name}` is closed because it failed: {error}; metrics.jsonl is still written")


class _FailureHandler:
    """A context manager that passes an exception of the block to ``handle``."""

    def __init__(self, name: str, handle: Callable[[str, Exception], None]) -> None:
        self._name, self._handle = name, handle

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._handle(self._name, error)
        return True


class _Last:
    """The last step of each kind that each sink got, stored in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def last_step(self, view: str, kind: str) -> int:
        """Return the last step of a kind; -1 if there was none."""
        return self._steps.get(f"{view}/{kind}", -1)

    def store(self, view: str, row: MetricRow) -> None:
        """Store that a sink got a row."""
        self._steps[f"{view}/{row.kind}"] = row.step
        write_file(self._path, [json.dumps(self._steps, sort_keys=True).encode()])


def _enabled_sinks(settings: ReportSection) -> Iterator[str]:
    return (name for name in SINKS if getattr(settings, name))
