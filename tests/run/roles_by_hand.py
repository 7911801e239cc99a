"""The roles of a tiny asynchronous run, each a process that can be killed and started again.

They are what a person would start on several hosts: ``whetstone role flow``, ``rollout`` and ``trainer``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.run.tiny_recipe import RECIPE
from tests.warm_command import ENOUGH_S, WarmCommand

SECTION = "flow: {staleness: 0, silence_s: 5}\n"
CHEAPER = ("data.heldout=null",)
"""Overrides of the tiny recipe: evaluating takes longest of all that it does."""


def write_async_recipe(folder: Path) -> Path:
    """The tiny recipe with a flow."""
    path = folder / "async.yaml"
    path.write_text(RECIPE + SECTION, encoding="utf-8")
    return path


def until(condition: Callable[[], bool], what: str, *alive: WarmCommand) -> None:
    """Wait for something, as long as those who are to bring it about live."""
    deadline = time.monotonic() + ENOUGH_S
    while not condition():
        for process in alive:
            assert process.running, f"{what}: {process.printed()}\n{process.printed('err')}"
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def process_of(parent: int, role: str, model: str = "") -> int:
    """The process of a role that ``parent`` has started; ``model``: of the trainer of a second one."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        if role in words and (model in words if model else "--model" not in words):
            return int(child)
    raise AssertionError(f"there is no {role} {model}")


class RolesByHand:
    """A flow, one replica and a trainer of ``recipe``, to be left by ``with``."""

    def __init__(self, recipe: Path, out: Path, *overrides: str) -> None:
        self._recipe, self.out, self._overrides = str(recipe), out, overrides
        self._undone = ExitStack()
        self._port = 0
        self.flow: WarmCommand
        self.rollout: WarmCommand
        self.trainer: WarmCommand

    def __enter__(self) -> RolesByHand:
        self.start_flow()
        self.start_rollout()
        self.start_trainer()
        return self

    def __exit__(self, *error: object) -> None:
        self._undone.close()

    def start_flow(self) -> None:
        self.flow = self._start("flow", "--port", str(self._port))
        until(lambda: "listening" in self.flow.printed("err"), "the flow to listen", self.flow)
        first = self.flow.printed("err").splitlines()
        self._port = next(json.loads(line)["port"] for line in first if '"listening"' in line)

    def start_rollout(self) -> None:
        self.rollout = self._start("rollout", "--name", "one", *self._flow())

    def start_trainer(self) -> None:
        self.trainer = self._start("trainer", *self._flow())

    def records(self) -> list[dict[str, Any]]:
        """What has been written to metrics.jsonl."""
        file = self.out / "metrics.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    def until_records(self, count: int) -> None:
        until(lambda: len(self.records()) >= count, f"{count} records", self.trainer)

    def _flow(self) -> list[str]:
        return ["--flow", f"http://127.0.0.1:{self._port}"]

    def _start(self, role: str, *options: str) -> WarmCommand:
        command = WarmCommand("role", role, self._recipe, f"out={self.out}", *self._overrides, *options)
        return self._undone.enter_context(command)
