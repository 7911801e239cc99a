"""An asynchronous run from one command: ``whetstone train`` starts its roles and restarts them.

This process loads no model. It starts a flow, passes its address to replicas and a trainer, prints their
output, and stores it in ``logs/`` of the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from whetstone.core.addresses import host_port, is_loopback
from whetstone.core.errors import INTERRUPTED
from whetstone.core.outputs import write_file
from whetstone.core.run_lock import check_unlocked
from whetstone.report.metrics import Record
from whetstone.run.display import Display
from whetstone.run.evaluations import evaluation_records
from whetstone.run.recipe import Recipe, dump_recipe
from whetstone.run.roles.identity import flow_section
from whetstone.run.roles.on_ray import RayPlacement
from whetstone.run.roles.role_addresses import replica_command
from whetstone.run.roles.supervise import Role, RoleProcess, Supervisor, role_command, start_local
from whetstone.run.run_dir import LOGS


class Placement(Protocol):
    """Starts roles. ``words`` are the arguments of ``whetstone role ROLE RECIPE``; ``number`` is the index of
    the trainer or replica."""

    def flow(self, words: Sequence[str]) -> Coroutine[Any, Any, RoleProcess]:
        """Start the flow."""
        ...

    def trainer(self, number: int, words: Sequence[str]) -> Coroutine[Any, Any, RoleProcess]:
        """Start the trainer."""
        ...

    def replica(self, number: int, words: Sequence[str]) -> Coroutine[Any, Any, RoleProcess]:
        """Start a rollout replica."""
        ...

    def close(self) -> None:
        """Release all resources of the roles."""
        ...


class _LocalPlacement:
    """Starts roles on this machine. ``file``: the recipe."""

    def __init__(self, recipe: Recipe, file: Path) -> None:
        self._file = file
        # Roles that work concurrently each get their part of the cores. With staleness 0 they take turns and
        # use all cores; a deterministic run then computes exactly as a run in one process.
        section = flow_section(recipe)
        each = max(
            1, (os.cpu_count() or 1) // (section.replicas + section.ranks * len(recipe.environment.models))
        )
        self._threads = ["--threads", str(each)] if section.staleness else []
        self._gpus = section.gpus

    async def flow(self, words: Sequence[str]) -> RoleProcess:
        """See Placement."""
        return await self._start("flow", words)

    async def trainer(self, number: int, words: Sequence[str]) -> RoleProcess:
        """See Placement."""
        return await self._start(
            "trainer", [*words, *self._threads, *_gpu_arguments(self._gpus.trainers, number)]
        )

    async def replica(self, number: int, words: Sequence[str]) -> RoleProcess:
        """See Placement."""
        return await self._start(
            "rollout", [*words, *self._threads, *_gpu_arguments(self._gpus.replicas, number)]
        )

    def close(self) -> None:
        """See Placement."""

    async def _start(self, role: str, words: Sequence[str]) -> RoleProcess:
        return await start_local(role_command(role, self._file, words))


def _gpu_arguments(gpus: Sequence[str], number: int) -> list[str]:
    """Return the argument for the devices of one of several processes; empty if none are configured."""
    return ["--gpus", gpus[number]] if gpus else []


def train_async(
    recipe: Recipe, display: Display, display_name: str = "", *, ray: str | None = None
) -> tuple[Record, Record] | None:
    """Run a recipe with a section ``flow`` to its last step; return its first and last evaluation.

    display_name: the recipe's name in the printed command for other hosts. ray: place the roles on the Ray
    cluster at this address, of which this machine is a node.

    Returns None if it was stopped before. Raises UserError for an invalid recipe, with the last output of a
    role that refuses it, and for a role that dies too often.
    """
    section = flow_section(recipe)
    folder = recipe.run_dir()
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    check_unlocked(folder)
    with tempfile.TemporaryDirectory(prefix="whetstone-") as temporary:
        file = Path(temporary) / "recipe.yaml"
        # All roles read the same resolved recipe, also if the original file changes during the run.
        write_file(file, [dump_recipe(recipe).encode()])
        placement = (
            _LocalPlacement(recipe, file) if ray is None else RayPlacement(recipe, file, ray, display.log)
        )
        roles = _roles(recipe, placement, display.log, display_name if ray is None else "")
        log = _RoleLogs(folder, max(len(role.name) for role in roles))
        supervisor = Supervisor(
            roles,
            restarts=section.restarts,
            on_line=lambda name, line: display.log(log.format_line(name, line)),
            log=lambda text: display.log(log.format_line("run", text)),
        )
        try:
            status = asyncio.run(supervisor.run())
        finally:
            placement.close()
            log.close()
            # A run that has not started leaves no folder.
            if created and not (folder / "recipe.yaml").exists():
                (folder / ".lock").unlink(missing_ok=True)
                with suppress(OSError):
                    for path in created:
                        path.rmdir()
    if status == INTERRUPTED:
        return None
    evaluated = evaluation_records(folder)
    return evaluated.get(0, {}), evaluated.get(max(evaluated, default=0), {})


def _roles(recipe: Recipe, placement: Placement, log: Callable[[str], None], display_name: str) -> list[Role]:
    section, models = flow_section(recipe), recipe.environment.models
    flow = _FlowAddress(section.port, log, display_name)

    def replica(number: int) -> Role:
        name = f"rollout-{number}"
        return Role(name, lambda: placement.replica(number, ["--flow", flow.url, "--name", name]))

    def trainer(number: int, model: str) -> Role:
        which = ["--model", model] if number else []
        # The first trainer uses one port per rank, and the next one the ports after these.
        if number and section.weights.port:
            which += ["--weights-port", str(section.weights.port + number * section.ranks)]
        return Role(
            f"trainer-{model}" if len(models) > 1 else "trainer",
            lambda: placement.trainer(number, ["--flow", flow.url, *which]),
            ends_run=True,
        )

    return [
        Role(
            "flow",
            lambda: placement.flow(["--port", str(flow.port)]),
            is_ready=flow.on_line,
            outlives_others=True,
        ),
        *(trainer(number, model) for number, model in enumerate(models)),
        *(replica(number) for number in range(section.replicas)),
    ]


class _FlowAddress:
    """The flow's address. Its port is chosen at the first start and kept for restarts."""

    def __init__(self, port: int, log: Callable[[str], None], display_name: str) -> None:
        self.port, self.url = port, ""
        self._log, self._display_name = log, display_name

    def on_line(self, line: str) -> bool:
        """Return whether a line reports that the flow listens."""
        event = parse_event(line)
        if event.get("event") != "listening":
            return False
        host, self.port = str(event["host"]), int(event["port"])
        if self._display_name and not is_loopback(host):
            self._log(f"a replica on another host: {replica_command(host, self.port, self._display_name)}")
        # A flow that listens on all addresses is reached over loopback from this machine.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        self.url = f"http://{host_port(host, self.port)}"
        return True


def parse_event(line: str) -> dict[str, Any]:
    """Parse a JSON log line of a service; return an empty dict for any other line."""
    if line.startswith("{") and line.endswith("}"):
        try:
            return dict(json.loads(line))
        except ValueError:
            return {}
    return {}


class _RoleLogs:
    """The roles' output in ``logs/ROLE.log`` of the run.

    Lines are buffered until the run has written its recipe, because nothing may be written to its folder
    before.
    """

    def __init__(self, run: Path, width: int) -> None:
        """``width``: of the longest name."""
        self._run, self._width = run, width
        self._waiting: list[tuple[str, str]] = []
        self._files: dict[str, Any] = {}

    def format_line(self, name: str, line: str) -> str:
        """Store a line, and return it as it is printed."""
        self._waiting.append((name, line))
        if (self._run / "recipe.yaml").exists():
            self._write()
        event = parse_event(line)
        if event:
            rest = " ".join(f"{k}={v}" for k, v in event.items() if k not in ("time", "event"))
            line = f"{event.get('event')} {rest}".strip()
        return f"{name:<{self._width}} | {line}"

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _write(self) -> None:
        for name, line in self._waiting:
            if name not in self._files:
                (self._run / LOGS).mkdir(exist_ok=True)
                self._files[name] = (self._run / LOGS / f"{name}.log").open(
                    "a", encoding="utf-8", buffering=1
                )
            self._files[name].write(line + "\n")
        self._waiting.clear()
