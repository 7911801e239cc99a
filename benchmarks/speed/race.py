"""Contestants side by side: each in its own process tree, pinned to one core, batches taken in turn."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from speed.roster import ROSTER, Entry
from speed.tree_cpu import tree_cpu

T = TypeVar("T")
PATIENCE_S = 600.0
_DRIVER = Path(__file__).with_name("driver.py")


class DroppedOut(Exception):
    """A contestant cannot go on; the message says why."""


@dataclass(frozen=True)
class Batch:
    """What one batch cost: CPU of the whole tree, wall time, and the number of tasks accepted."""

    cpu_s: float
    wall_s: float
    accepted: int


def absent(entry: Entry, paths: Mapping[str, str]) -> str | None:
    """Why a contestant cannot take part with the paths given; None when it can."""
    for option in (entry.interpreter, *entry.needs):
        path = paths.get(option, "")
        if not path or not os.path.exists(path):
            return f"--{option.replace('_', '-')} {'is not given' if not path else f'{path} is not there'}"
    return None


class Contestant:
    """One contestant's process, and the meter around it."""

    def __init__(
        self, name: str, options: Mapping[str, str], workloads: Mapping[str, Any], core: int
    ) -> None:
        """Start the process, which waits for work."""
        entry = ROSTER[name]
        self.name = name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed by kill)
        environment = {k: v for k, v in os.environ.items() if entry.interpreter == "own" or k != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [options[entry.interpreter], *entry.flags, str(_DRIVER), name, json.dumps(dict(options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=environment,
            start_new_session=True,
        )
        os.sched_setaffinity(self._process.pid, {core})
        self._cpu = tree_cpu(f"judge-speed-{os.getpid()}-{name}")
        self._cpu.add(self._process.pid)
        self.meter = self._cpu.source
        self._workloads = json.dumps(workloads)

    def prepare(self) -> None:
        """Hand over all work, upon which it starts its judge: all children are born into the group."""
        self._tell(self._workloads)
        self._answer()

    def batch(self, workload: str) -> Batch:
        """Judge a workload's tasks once. Raises DroppedOut."""
        before = self._cpu.seconds()
        self._tell(workload)
        answer = self._answer()
        return Batch(self._cpu.seconds() - before, answer["wall_s"], answer["accepted"])

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._dropped_out("it ended") from None

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
            raise self._dropped_out(f"no answer within {PATIENCE_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._dropped_out("it ended")
        return json.loads(line)

    def _dropped_out(self, what: str) -> DroppedOut:
        self._said.seek(0)
        last = self._said.read().decode(errors="replace").strip().splitlines()[-1:]
        return DroppedOut(f"{what}: {last[0][:200]}" if last else what)

    def finish(self) -> float:
        """End it in good order; the share of its CPU, as it counted itself, that the meter saw."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        counted = self._answer()["waited_s"]
        seen = self._cpu.seconds()
        self.kill()
        return seen / counted

    def kill(self) -> None:
        """End what is left of it: its session is our own making."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._cpu.close()
        self._said.close()


class Race:
    """All contestants, started; ``results[contestant][workload]`` grows with every round."""

    def __init__(
        self, names: Sequence[str], paths: Mapping[str, str], workloads: Mapping[str, Any], core: int
    ) -> None:
        self.results: dict[str, dict[str, list[Batch]]] = {}
        self.out: dict[str, str] = {}
        self.running: dict[str, Contestant] = {}
        for name in names:
            missing = absent(ROSTER[name], paths)
            if missing is None:
                self.running[name] = Contestant(name, paths, workloads, core)
                self.results[name] = {workload: [] for workload in workloads}
                self._try(name, self.running[name].prepare)
            else:
                self.out[name] = f"not run: {missing}"

    def round(self, workload: str, turn: int, *, keep: bool = True) -> None:
        """One batch of each contestant, beginning with another one every turn."""
        names = list(self.running)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            batch = self._try(name, lambda name=name: self.running[name].batch(workload))
            if keep and batch is not None:
                self.results[name][workload].append(batch)

    def _try(self, name: str, step: Callable[[], T]) -> T | None:
        """Do one step of a contestant; one that fails is out, with the reason and without figures."""
        try:
            return step()
        except DroppedOut as why:
            self.out[name] = f"dropped out: {why}"
            self.running.pop(name).kill()
            del self.results[name]
            return None

    def finish(self) -> dict[str, float]:
        """End all; what share of each one's CPU was seen by the meter (about 1)."""
        seen: dict[str, float] = {}
        for name in list(self.running):
            share = self._try(name, self.running[name].finish)
            if share is not None:
                seen[name] = share
        self.running.clear()
        return seen

    def abandon(self) -> None:
        """End all now."""
        for contestant in self.running.values():
            contestant.kill()
        self.running.clear()
