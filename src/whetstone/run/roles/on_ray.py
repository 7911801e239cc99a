"""Places the roles of a run on a Ray cluster; replicas run on any node with free resources.

``RoleHost``, which runs a role on a node, is the class of a Ray actor, but does not depend on Ray.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from whetstone import __version__
from whetstone.core.errors import BAD_INPUT, UserError
from whetstone.core.outputs import write_file
from whetstone.core.ray_driver import ActorLost, RayActor, RayDriver, RayNode
from whetstone.rollout.settings import Resources
from whetstone.run.recipe import Recipe, dump_recipe
from whetstone.run.roles.identity import flow_section
from whetstone.run.roles.role_addresses import run_token
from whetstone.run.roles.supervise import LocalProcess, RoleProcess, role_command, start_local
from whetstone.weights.settings import TOKEN_VARIABLE


class RemoteRole(Struct, frozen=True):
    """A role to start: ``whetstone role ROLE`` with these arguments after the recipe.

    folder: the working directory, for relative paths in the recipe. variables: of its environment. version:
    the Whetstone version of the driver.
    """

    role: str
    words: list[str]
    recipe: str
    folder: str
    variables: dict[str, str]
    version: str = __version__


class RoleHost:
    """One role on this node. Its process ends when this one ends, for any reason."""

    def __init__(self, setup: bytes) -> None:
        self._role = msgspec.msgpack.decode(setup, type=RemoteRole)
        self._temporary = TemporaryDirectory(prefix="whetstone-")
        self._process: LocalProcess | None = None

    async def start(self) -> str:
        """Start the role. Return an empty text, or why it cannot start here."""
        role = self._role
        if reason := _refusal_reason(role):
            return reason
        file = Path(self._temporary.name) / "recipe.yaml"
        write_file(file, [role.recipe.encode()])
        self._process = await start_local(
            role_command(role.role, file, role.words),
            variables=role.variables,
            folder=Path(role.folder),
        )
        return ""

    async def read(self) -> bytes:
        """See RoleProcess."""
        return b"" if self._process is None else await self._process.read()

    async def send_signal(self, number: int) -> None:
        """See RoleProcess."""
        if self._process is not None:
            self._process.send_signal(signal.Signals(number))

    async def wait(self) -> int:
        """See RoleProcess."""
        assert self._process is not None, "nothing was started"
        status = await self._process.wait()
        self._temporary.cleanup()
        return status


def _refusal_reason(role: RemoteRole) -> str:
    """Return why this node cannot run the role; empty if it can."""
    node = os.uname().nodename
    if role.version != __version__:
        return (
            f"{node} has Whetstone {__version__}, but the run uses {role.version}: install the same version"
        )
    if not Path(role.folder).is_dir():
        return (
            f"{node} has no folder {role.folder}, in which the run was started: create it there with "
            "the files that "
            "the recipe names by relative paths"
        )
    return ""


# Seconds after which a role that waits for resources is reported.
_LOG_AFTER_S = 20.0

Say = Callable[[str], None]


class RayPlacement:
    """The Ray cluster at ``address``.

    Flow and trainer run on this node, because the run's folder is here. Replicas run on any node, and move if
    their node is lost.
    """

    def __init__(self, recipe: Recipe, file: Path, address: str, say: Say) -> None:
        """Join the cluster. Raises UserError if there is none, or no node has the resources of a role;
        ModuleNotFoundError if Ray is not installed."""
        self._recipe, self._file, self._say = recipe, file, say
        self._section = flow_section(recipe)
        # Roles on other nodes are not on loopback, so they need a token in any case.
        self._variables = {TOKEN_VARIABLE: run_token() or secrets.token_hex(32)}
        self._driver = RayDriver(address, "`whetstone train`")
        try:
            self._own = check_resources(self._driver.nodes(), self._driver.own_node(), recipe)
        except BaseException:
            self._driver.close()
            raise

    async def flow(self, words: Sequence[str]) -> RoleProcess:
        """See Placement."""
        given = role_command("flow", self._file, [*words, "--host", self._own.address])
        return await start_local(given, variables=self._variables)

    async def trainer(self, number: int, words: Sequence[str]) -> RoleProcess:
        """See Placement."""
        listens = ["--weights-host", self._own.address]
        return self._place("trainer", [*words, *listens], self._section.trainer_resources, self._own.id)

    async def replica(self, number: int, words: Sequence[str]) -> RoleProcess:
        """See Placement."""
        return self._place("rollout", words, self._section.replica_resources, None)

    def close(self) -> None:
        """See Placement."""
        self._driver.close()

    def _place(self, role: str, words: Sequence[str], needs: Resources, node: str | None) -> RoleProcess:
        # Several replicas may share a node. With a thread for each core they would slow each other down.
        threads = ["--threads", str(max(1, int(needs.cpus)))]
        placed = RemoteRole(
            role, [*words, *threads], dump_recipe(self._recipe), str(Path.cwd()), self._variables
        )
        setup = msgspec.msgpack.encode(placed)
        actor = self._driver.start(RoleHost, setup, node=node, cpus=needs.cpus, gpus=needs.gpus or 0.0)
        return _RayProcess(
            actor, lambda: self._say(f"a {role} waits for a node with {needs.describe()} free")
        )


def check_resources(nodes: Sequence[RayNode], own: str, recipe: Recipe) -> RayNode:
    """Return this process's node. Raises UserError if no node has the resources of a role, even when idle."""
    section = flow_section(recipe)
    mine = next(node for node in nodes if node.id == own)
    for role, needs, where in (
        ("trainer", section.trainer_resources, [mine]),
        ("replica", section.replica_resources, nodes),
    ):
        device = recipe.model.device
        has_gpus = any(node.resources.get("GPU", 0.0) > 0 for node in where)
        wanted = device not in ("auto", "cpu") or (device == "auto" and has_gpus)
        # Ray hides the GPUs of a node from actors that request none.
        if wanted and not needs.gpus:
            raise UserError(
                f"`model.device` is {device}, and Ray would give a {role} no GPU: set "
                f"`flow.resources.{role}.gpus`, or `model.device=cpu`"
            )
        if not any(_holds(node, needs) for node in where):
            there = "; ".join(f"{node.name} has {_described(node)}" for node in where)
            raise UserError(
                f"no place for a {role}, which needs {needs.describe()} (`flow.resources.{role}`): {there}"
            )
    return mine


def _holds(node: RayNode, needs: Resources) -> bool:
    has = node.resources
    return has.get("CPU", 0.0) >= needs.cpus and has.get("GPU", 0.0) >= (needs.gpus or 0.0)


def _described(node: RayNode) -> str:
    return Resources(cpus=node.resources.get("CPU", 0.0), gpus=node.resources.get("GPU", 0.0)).describe()


class _RayProcess:
    """A role in a Ray actor, which may still wait for resources."""

    def __init__(self, actor: RayActor, waits: Callable[[], None]) -> None:
        self._actor, self._waits = actor, waits
        self._last_words: list[bytes] = []
        self._sent: set[asyncio.Task[None]] = set()
        self._started = asyncio.create_task(self._start())

    async def read(self) -> bytes:
        """See RoleProcess."""
        if await asyncio.shield(self._started):
            with suppress(ActorLost):
                if output := await self._actor.call("read"):
                    return bytes(output)
        return self._last_words.pop() if self._last_words else b""

    def send_signal(self, number: signal.Signals) -> None:
        """See RoleProcess."""
        # Ray kills an actor with its processes; one that is still waiting has no process to signal.
        if number == signal.SIGKILL or not self._started.done():
            self._actor.end()
            return
        task = asyncio.create_task(self._send(number))
        self._sent.add(task)
        task.add_done_callback(self._sent.discard)

    async def wait(self) -> int:
        """See RoleProcess. The loss of a node counts as SIGKILL."""
        try:
            if not await asyncio.shield(self._started):
                # The role itself could not start, which a restart would not change. A lost actor is
                # restarted.
                return BAD_INPUT if self._last_words else -signal.SIGKILL
            return int(await self._actor.call("wait"))
        except ActorLost as error:
            self._last_words.append(f"{error}\n".encode())
            return -signal.SIGKILL
        finally:
            self._actor.end()

    async def _start(self) -> bool:
        """Return whether the process was started."""
        starting = asyncio.create_task(self._actor.call("start"))
        await asyncio.wait([starting], timeout=_LOG_AFTER_S)
        if not starting.done():
            self._waits()
        try:
            why = str(await starting)
        except ActorLost:
            return False
        if why:
            self._last_words.append(f"{why}\n".encode())
        return not why

    async def _send(self, number: signal.Signals) -> None:
        with suppress(ActorLost):
            await self._actor.call("send_signal", int(number))
