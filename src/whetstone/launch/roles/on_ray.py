"""The roles of a run over a Ray cluster: the replicas wherever there is place."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from whetstone.errors import BAD_INPUT, UserError
from whetstone.flow.settings import Resources
from whetstone.judge_service.cluster.ray_driver import ActorLost, RayActor, RayDriver, RayNode
from whetstone.launch.recipe import Recipe, dump_recipe
from whetstone.launch.roles.node import Placed, RoleHost
from whetstone.launch.roles.process import Started, role_command, start_local
from whetstone.launch.roles.where import own_token
from whetstone.launch.roles.whose import flow_section
from whetstone.weights.settings import TOKEN_VARIABLE

_PATIENCE_S = 20.0
"""A role that has found no place for so long is named."""

Say = Callable[[str], None]


class OverRay:
    """The Ray cluster at ``address``. The flow and the trainer are on this node, for the run's folder is; the
    replicas wherever there is place, and again elsewhere when their node is lost."""

    def __init__(self, recipe: Recipe, file: Path, address: str, say: Say) -> None:
        """Join the cluster. Raises UserError where there is none, and where no node of it could have a role;
        ModuleNotFoundError where Ray is not installed."""
        self._recipe, self._file, self._say = recipe, file, say
        self._section = flow_section(recipe)
        self._variables = {TOKEN_VARIABLE: own_token() or secrets.token_hex(32)}
        self._driver = RayDriver(address, "`whetstone train`")
        try:
            self._own = check_room(self._driver.nodes(), self._driver.own_node(), recipe)
        except BaseException:
            self._driver.close()
            raise

    async def flow(self, words: Sequence[str]) -> Started:
        """See Places."""
        given = role_command("flow", self._file, [*words, "--host", self._own.address])
        return await start_local(given, variables=self._variables)

    async def trainer(self, number: int, words: Sequence[str]) -> Started:
        """See Places."""
        listens = ["--weights-host", self._own.address]
        return self._place("trainer", [*words, *listens], self._section.needs_of_trainer, self._own.id)

    async def replica(self, number: int, words: Sequence[str]) -> Started:
        """See Places."""
        return self._place("rollout", words, self._section.needs_of_replica, None)

    def close(self) -> None:
        """See Places."""
        self._driver.close()

    def _place(self, role: str, words: Sequence[str], needs: Resources, node: str | None) -> Started:
        threads = ["--threads", str(max(1, int(needs.cpus)))]
        placed = Placed(role, [*words, *threads], dump_recipe(self._recipe), str(Path.cwd()), self._variables)
        setup = msgspec.msgpack.encode(placed)
        actor = self._driver.start(RoleHost, setup, node=node, cpus=needs.cpus, gpus=needs.gpus or 0.0)
        return _OnRay(actor, lambda: self._say(f"a {role} waits for a node with {needs.said()} free"))


def check_room(nodes: Sequence[RayNode], own: str, recipe: Recipe) -> RayNode:
    """Which node is this process's. Raises UserError where a role has place on none, however empty."""
    section = flow_section(recipe)
    mine = next(node for node in nodes if node.id == own)
    for role, needs, where in (
        ("trainer", section.needs_of_trainer, [mine]),
        ("replica", section.needs_of_replica, nodes),
    ):
        device = recipe.model.device
        wanted = device not in ("auto", "cpu") or (device == "auto" and any(map(_has_gpus, where)))
        if wanted and not needs.gpus:
            raise UserError(
                f"`model.device` is {device}, and Ray would give a {role} no GPU: set "
                f"`flow.resources.{role}.gpus`, or `model.device=cpu`"
            )
        if not any(_holds(node, needs) for node in where):
            there = "; ".join(f"{node.name} has {_said(node)}" for node in where)
            raise UserError(
                f"no place for a {role}, which needs {needs.said()} (`flow.resources.{role}`): {there}"
            )
    return mine


def _holds(node: RayNode, needs: Resources) -> bool:
    has = node.resources
    return has.get("CPU", 0.0) >= needs.cpus and has.get("GPU", 0.0) >= (needs.gpus or 0.0)


def _has_gpus(node: RayNode) -> bool:
    return node.resources.get("GPU", 0.0) > 0


def _said(node: RayNode) -> str:
    return Resources(cpus=node.resources.get("CPU", 0.0), gpus=node.resources.get("GPU", 0.0)).said()


class _OnRay:
    """A role in an actor, which may still have to find a place."""

    def __init__(self, actor: RayActor, waits: Callable[[], None]) -> None:
        self._actor, self._waits = actor, waits
        self._last_words: list[bytes] = []
        self._sent: set[asyncio.Task[None]] = set()
        self._begun = asyncio.create_task(self._begin())

    async def read(self) -> bytes:
        """See Started."""
        if await asyncio.shield(self._begun):
            with suppress(ActorLost):
                if said := await self._actor.call("read"):
                    return bytes(said)
        return self._last_words.pop() if self._last_words else b""

    def tell(self, number: signal.Signals) -> None:
        """See Started."""
        if number == signal.SIGKILL or not self._begun.done():
            self._actor.end()
            return
        task = asyncio.create_task(self._send(number))
        self._sent.add(task)
        task.add_done_callback(self._sent.discard)

    async def wait(self) -> int:
        """See Started. A node that is lost ends a role as SIGKILL does."""
        try:
            if not await asyncio.shield(self._begun):
                return BAD_INPUT if self._last_words else -signal.SIGKILL
            return int(await self._actor.call("wait"))
        except ActorLost as error:
            self._last_words.append(f"{error}\n".encode())
            return -signal.SIGKILL
        finally:
            self._actor.end()

    async def _begin(self) -> bool:
        """Whether the process was started."""
        starting = asyncio.create_task(self._actor.call("start"))
        await asyncio.wait([starting], timeout=_PATIENCE_S)
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
            await self._actor.call("tell", int(number))
