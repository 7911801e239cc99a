"""An asynchronous run from one command: ``whetstone train`` starts its roles and keeps them going.

This process loads no model: it starts a flow, tells replicas and a trainer where it is, shows what they say,
and keeps it in ``logs/`` of the run.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from whetstone.addresses import host_port, is_loopback
from whetstone.errors import INTERRUPTED
from whetstone.launch.display import Display
from whetstone.launch.evaluations import recorded
from whetstone.launch.recipe import Recipe, dump_recipe
from whetstone.launch.roles.on_ray import OverRay
from whetstone.launch.roles.places import Here, Places
from whetstone.launch.roles.supervise import Role, Supervisor
from whetstone.launch.roles.told import LOGS
from whetstone.launch.roles.where import how_to_join, listening_address
from whetstone.launch.roles.whose import flow_section, rules_of
from whetstone.launch.run_lock import check_unlocked
from whetstone.outputs import write_file
from whetstone.report.metrics import Record
from whetstone.weights.settings import TOKEN_VARIABLE


def check_here(recipe: Recipe, *, ray: str | None = None) -> None:
    """Raise UserError for rules by which no batch can be made, and for an address that needs a token.

    ray: as in ``train_here``, which then says the address.
    """
    rules_of(recipe).check()
    if ray is not None:
        return
    listening_address(flow_section(recipe), None, None, None).check(
        "the flow would serve",
        f"set {TOKEN_VARIABLE} on every host (`openssl rand -hex 32`), or flow.host=127.0.0.1",
    )


def train_here(
    recipe: Recipe, display: Display, shown: str = "", *, ray: str | None = None
) -> tuple[Record, Record] | None:
    """Run a recipe with a section ``flow`` to its last step: the first and the last evaluation.

    shown: the recipe's name in the command for other hosts, which is said when they can reach the flow. ray:
    place the roles over the Ray cluster at this address, of which this machine is a node.

    None when it was told to end before. Raises UserError for a recipe that cannot be, with the last words of
    a role that refuses, and for one that dies too often.
    """
    section = flow_section(recipe)
    check_here(recipe, ray=ray)
    folder = recipe.run_dir()
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    check_unlocked(folder)
    with tempfile.TemporaryDirectory(prefix="whetstone-") as temporary:
        file = Path(temporary) / "recipe.yaml"
        write_file(file, [dump_recipe(recipe).encode()])
        places = Here(recipe, file) if ray is None else OverRay(recipe, file, ray, display.say)
        roles = _roles(recipe, places, display.say, shown if ray is None else "")
        log = _Log(folder, max(len(role.name) for role in roles))
        supervisor = Supervisor(
            roles,
            restarts=section.restarts,
            hears=lambda name, line: display.say(log.note(name, line)),
            say=lambda text: display.say(log.note("run", text)),
        )
        try:
            status = asyncio.run(supervisor.run())
        finally:
            places.close()
            log.close()
            if made and not (folder / "recipe.yaml").exists():  # nothing came of it
                (folder / ".lock").unlink(missing_ok=True)
                with suppress(OSError):
                    for path in made:
                        path.rmdir()
    if status == INTERRUPTED:
        return None
    evaluated = recorded(folder)
    return evaluated.get(0, {}), evaluated.get(max(evaluated, default=0), {})


def _roles(recipe: Recipe, places: Places, say: Callable[[str], None], shown: str) -> list[Role]:
    section, models = flow_section(recipe), recipe.workflow.models
    flow = _Flow(section.port, say, shown)

    def replica(number: int) -> Role:
        name = f"rollout-{number}"
        return Role(name, lambda: places.replica(number, ["--flow", flow.url, "--name", name]))

    def trainer(number: int, model: str) -> Role:
        which = ["--model", model] if number else []
        if number and section.weights.port:  # beside those of the first: each rank has one
            which += ["--weights-port", str(section.weights.port + number * section.ranks)]
        return Role(
            f"trainer-{model}" if len(models) > 1 else "trainer",
            lambda: places.trainer(number, ["--flow", flow.url, *which]),
            leads=True,
        )

    return [
        Role("flow", lambda: places.flow(["--port", str(flow.port)]), ready=flow.hear, stays=True),
        *(trainer(number, model) for number, model in enumerate(models)),
        *(replica(number) for number in range(section.replicas)),
    ]


class _Flow:
    """Where the flow listens: on a port that it finds when it is first started, and keeps."""

    def __init__(self, port: int, say: Callable[[str], None], shown: str) -> None:
        self.port, self.url = port, ""
        self._say, self._shown = say, shown

    def hear(self, line: str) -> bool:
        """Whether a line says that it listens."""
        said = event(line)
        if said.get("event") != "listening":
            return False
        host, self.port = str(said["host"]), int(said["port"])
        if self._shown and not is_loopback(host):
            self._say(f"a replica on another host: {how_to_join(host, self.port, self._shown)}")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        self.url = f"http://{host_port(host, self.port)}"
        return True


def event(line: str) -> dict[str, Any]:
    """A line of JSON as a service logs it; of any other line nothing."""
    if line.startswith("{") and line.endswith("}"):
        try:
            return dict(json.loads(line))
        except ValueError:
            return {}
    return {}


class _Log:
    """What the roles say, in ``logs/ROLE.log`` of the run, which begins with its recipe: before, nothing of
    a run may be written."""

    def __init__(self, run: Path, width: int) -> None:
        """``width``: of the longest name."""
        self._run, self._width = run, width
        self._waiting: list[tuple[str, str]] = []
        self._files: dict[str, Any] = {}

    def note(self, name: str, line: str) -> str:
        """Keep a line; as it is shown."""
        self._waiting.append((name, line))
        if (self._run / "recipe.yaml").exists():
            self._write()
        said = event(line)
        if said:
            rest = " ".join(f"{k}={v}" for k, v in said.items() if k not in ("time", "event"))
            line = f"{said.get('event')} {rest}".strip()
        return f"{name:<{self._width}} | {line}"

    def close(self) -> None:
        """Let go of the files."""
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
