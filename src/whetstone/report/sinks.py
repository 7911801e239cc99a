"""Other tools that show the metrics of a run, and the writer of metrics.jsonl that sends them each record.

At each start a sink gets the missing records. A sink that remembers gets each step of a kind once, even after
a kill: ``views/shown.json`` has the last steps. If a resumed run repeats steps, the file has the later
records, and such a sink the earlier ones. A sink that fails is closed with a message, and the run continues.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import write_file
from whetstone.report.metrics import MetricsWriter, Record, read_metrics
from whetstone.report.settings import ReportSection


class MetricRow(Struct, frozen=True):
    """A flat record. Names begin with the kind of the record: ``train/reward/mean``, ``eval/time/eval``."""

    step: int
    kind: str
    numbers: dict[str, float]
    at: float | None
    """Unix seconds; None if the record does not have its time."""


class SinkRun(Struct, frozen=True):
    """The run for a sink: its name, the folder of the sink, and the project."""

    name: str
    folder: Path
    project: str = ""

    def own_id(self) -> str:
        """Return the permanent id of the run. The first call creates it."""
        file = self.folder / "id"
        if not file.exists():
            write_file(file, [secrets.token_hex(8).encode()])
        return file.read_text()


class Sink(Protocol):
    """An open sink.

    remembers: it keeps the rows of earlier starts. Otherwise it gets all rows again.
    """

    remembers: bool

    def show(self, row: MetricRow) -> None:
        """Show one row."""
        ...

    def close(self) -> None:
        """Send the remaining rows."""
        ...


class TensorBoard:
    """Event files in the folder of the run, rewritten at every start."""

    remembers = False

    def __init__(self, run: SinkRun) -> None:
        # Old files are deleted: steps that a resumed run repeats would appear twice.
        shutil.rmtree(run.folder, ignore_errors=True)
        self._writer: Any = import_module("tensorboard.summary").Writer(str(run.folder))

    def show(self, row: MetricRow) -> None:
        """See Sink."""
        for name, value in row.numbers.items():
            self._writer.add_scalar(name, value, row.step, wall_time=row.at)
        self._writer.flush()

    def close(self) -> None:
        """See Sink."""
        self._writer.close()


class Trackio:
    """One run, which is continued at every start. Runs are identified by their names, so the name ends with
    an id."""

    remembers = True

    def __init__(self, run: SinkRun) -> None:
        name = f"{run.name}-{run.own_id()}"
        self._run: Any = import_module("trackio").init(
            project=run.project, name=name, resume="allow", embed=False
        )

    def show(self, row: MetricRow) -> None:
        """See Sink."""
        self._run.log(row.numbers, step=row.step)

    def close(self) -> None:
        """See Sink."""
        self._run.finish()


class WeightsAndBiases:
    """One run, which is continued at every start.

    The step is a number of its row, because an evaluation may be recorded after later steps. Offline, wandb
    writes rarely, and a killed run leaves almost nothing. Its folder is then written again.
    """

    def __init__(self, run: SinkRun) -> None:
        self._run: Any = import_module("wandb").init(
            project=run.project, name=run.name, id=run.own_id(), dir=str(run.folder), resume="allow"
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
        """See Sink."""
        self._run.log({**row.numbers, f"{row.kind}/step": row.step})

    def close(self) -> None:
        """See Sink."""
        self._run.finish()


# The sinks by the name of their library, which is also that of the setting.
SINKS: dict[str, Callable[[SinkRun], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
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
        self._steps_file = self._views / "shown.json"
        # The last step of each kind that each sink got, by SINK/KIND.
        self._last_steps: dict[str, int] = {}
        if self._steps_file.exists():
            self._last_steps = json.loads(self._steps_file.read_text())

    def show(self) -> None:
        """Open the sinks and send them the missing records."""
        for name in _enabled_sinks(self._settings):
            with self._closed_on_failure(name):
                project = getattr(self._settings, name)
                run = SinkRun(self._name, self._views / name, project if isinstance(project, str) else "")
                self._open[name] = SINKS[name](run)
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
            with self._closed_on_failure(name):
                sink.close()

    def _show(self, row: MetricRow) -> None:
        for name, sink in list(self._open.items()):
            key = f"{name}/{row.kind}"
            if sink.remembers and row.step <= self._last_steps.get(key, -1):
                continue
            with self._closed_on_failure(name):
                if sink.remembers:  # stored first: a kill can lose a row, but not repeat one
                    self._last_steps[key] = row.step
                    write_file(self._steps_file, [json.dumps(self._last_steps, sort_keys=True).encode()])
                sink.show(row)

    @contextmanager
    def _closed_on_failure(self, name: str) -> Generator[None]:
        try:
            yield
        except Exception as error:
            self._open.pop(name, None)
            self._say(f"`report.{name}` is closed because it failed: {error}; metrics.jsonl is still written")


def _enabled_sinks(settings: ReportSection) -> Iterator[str]:
    return (name for name in SINKS if getattr(settings, name))


def row_of(record: Record) -> MetricRow:
    """Return the numbers of a record, with those under ``time`` as ``time/NAME``."""
    kind, clock = record["kind"], cast("dict[str, Any]", record.get("time", {}))
    flat = {**record, **{f"time/{name}": value for name, value in clock.items() if name != "at"}}
    numbers = {
        f"{kind}/{name}": float(value)
        for name, value in flat.items()
        if name != "step" and isinstance(value, int | float)
    }
    return MetricRow(record["step"], kind, numbers, clock.get("at"))
