"""The nodes of a cluster: each machine that is there gets a judge, and keeps one for as long as it is there.

A machine whose judge does not start, isolates too weakly or differs from the others is left out, with the
reason, and looked at again after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from whetstone import __version__
from whetstone.judge.workers.wire import pack, unpack
from whetstone.judge_service.cluster.fleet import Fleet, Machine, NodeLost, Post
from whetstone.judge_service.cluster.link import KNOWN_BYTES, NodeLink
from whetstone.judge_service.cluster.messages import Fit, NodeSetup, NodeState, Unfit
from whetstone.judge_service.cluster.router import Router
from whetstone.sandbox.job import Tier

LOOK_EVERY_S = 1.0
_START_S = 600.0
"""So long a judge may take to start: its machine may be busy, and its cores taken by other work."""
_FIRST_REST_S, _LONGEST_REST_S = 1.0, 60.0
_STEADY_S = 60.0
"""A judge that lived so long has done well: if it is lost, the next one starts soon."""
_WAITS = "its judge has not started yet; if it stays so, its cores are taken by other work (ray status)"
Say = Callable[..., None]


class _LeftOut(Exception):
    """A machine that is not to judge, and why."""


class Members:
    """Machines as they come and go. Everything here is on the router's event loop."""

    def __init__(self, fleet: Fleet, router: Router, workers: int, settings: dict[str, Any]) -> None:
        """``workers``: of each node; 0 means one for each of its cores. ``settings`` are those of Judge."""
        self._fleet, self._router = fleet, router
        self._workers, self._settings = workers, settings
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._states: dict[str, NodeState] = {}
        self._fit: dict[str, Fit] = {}
        self.first: Fit | None = None
        """What the first node said: the others must have the same packages and at least its languages."""
        self.say: Say = lambda *_, **__: None
        self.changed: Callable[[], None] = lambda: None
        self.losses = 0
        self._ending = False

    @property
    def isolation(self) -> str:
        """The weakest tier of the nodes that judge; of the first one where none does."""
        tiers = [fit.isolation for fit in list(self._fit.values())] or [
            self.first.isolation if self.first else ""
        ]
        return min(tiers, key=lambda label: Tier[label.upper()])

    def pids(self) -> list[int]:
        """Of all workers, each on its own machine."""
        return [pid for fit in list(self._fit.values()) for pid in fit.pids]

    def states(self) -> list[NodeState]:
        """Every machine that is there, as it fares now."""
        found = list[NodeState]()
        for id, state in list(self._states.items()):
            if id in self._fit:
                numbers = self._router.routing.under_way(id), self._router.answered[id]
                state = msgspec.structs.replace(state, under_way=numbers[0], judged=numbers[1])
            found.append(state)
        return found

    async def watch(self) -> None:
        """Look who is there, again and again."""
        try:
            while True:
                try:
                    machines = await asyncio.to_thread(self._fleet.machines)
                except NodeLost as error:
                    self.say("cluster_silent", reason=str(error))
                else:
                    await self._these(machines)
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._ending = True
            await self._no_more(list(self._keepers))

    async def _these(self, machines: list[Machine]) -> None:
        there = {machine.id: machine for machine in machines if machine.cores > 0}
        await self._no_more([id for id in self._keepers if id not in there])
        for id, machine in there.items():
            if id not in self._keepers:
                self._keepers[id] = asyncio.create_task(self._keep(machine))

    async def _no_more(self, ids: list[str]) -> None:
        keepers = [self._keepers.pop(id) for id in ids]
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        for id in ids:
            if (state := self._states.pop(id, None)) is not None and not self._ending:
                self.say("node_gone", node=state.name)
                self.changed()

    async def _keep(self, machine: Machine) -> None:
        """Have a judge on a machine, and another one when it is lost."""
        loop = asyncio.get_running_loop()
        workers = min(self._workers, machine.cores) or machine.cores
        self._states[machine.id] = NodeState(machine.name, "starting", workers, reason=_WAITS)
        rest_s = _FIRST_REST_S
        while True:
            began, losses = loop.time(), self.losses
            try:
                await self._one_judge(machine, workers)
            except Exception as error:  # whatever fails with one node must not end the others
                reason = str(error) if isinstance(error, NodeLost | _LeftOut) else repr(error)
                served = self.losses > losses
                state = "starting" if served else "left_out"
                self._state(machine, state=state, reason=reason, isolation="")
                if not served:
                    self.say("node_left_out", node=machine.name, reason=reason)
            if loop.time() - began > _STEADY_S:
                rest_s = _FIRST_REST_S
            self.changed()
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, _LONGEST_REST_S)

    async def _one_judge(self, machine: Machine, workers: int) -> None:
        """One judge's whole life. Raises NodeLost, _LeftOut."""
        setup = pack(NodeSetup(workers, self._settings, KNOWN_BYTES))
        post = await asyncio.to_thread(self._fleet.start, machine, workers, setup)
        try:
            fit = await self._hello(post)
            link = NodeLink(post, lambda found: self._router.outcomes(machine.id, found))
            await self._serves(machine, workers, fit, link)
        finally:
            await asyncio.shield(asyncio.to_thread(post.end))

    async def _hello(self, post: Post) -> Fit:
        said = unpack(await post.call("hello", None, _START_S), Fit, Unfit)
        if isinstance(said, Unfit):
            raise _LeftOut(said.reason)
        if (why := _differs(said, self.first)) is not None:
            raise _LeftOut(why)
        self.first = self.first or said
        return said

    async def _serves(self, machine: Machine, workers: int, fit: Fit, link: NodeLink) -> None:
        self._fit[machine.id] = fit
        self._state(machine, state="ready", reason="", isolation=fit.isolation)
        self._router.joined(machine.id, workers, link)
        self.say("node_ready", node=machine.name, workers=workers, isolation=fit.isolation)
        self.changed()
        reason = "its machine has left the cluster"
        try:
            await link.run()
        except NodeLost as error:
            reason = str(error)
            raise
        finally:
            del self._fit[machine.id]
            if not self._ending:
                self.losses += 1
                moved = self._router.left(machine.id, reason)
                self._state(machine, losses=self._states[machine.id].losses + 1)
                self.say("node_lost", node=machine.name, reason=reason, programs=moved)

    def _state(self, machine: Machine, **fields: Any) -> None:
        self._states[machine.id] = msgspec.structs.replace(self._states[machine.id], **fields)


def _differs(fit: Fit, first: Fit | None) -> str | None:
    """Why verdicts of this node could be others than those of the first one."""
    if fit.version != __version__:
        return f"it has Whetstone {fit.version}, the server {__version__}: install the same on both"
    if first is None:
        return None
    if fit.environment != first.environment:
        return (
            f"it offers programs the packages {fit.environment}, the other nodes {first.environment}: "
            "install the same versions, or give --environment"
        )
    if missing := sorted(set(first.languages) - set(fit.languages)):
        return f"it lacks {', '.join(missing)}, which the other nodes have: see `whetstone doctor` there"
    return None
