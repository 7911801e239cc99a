"""A disk that is full and a wire that is cut: training goes on, and every prompt is trained once or counted.

A flow in a process of its own; replicas and a trainer that ask it over sockets.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rollout.flow_process import ENOUGH_S, IDENTITY, FlowProcess
from tests.rollout.test_flow_service import NAMES, SeededEngine, replica
from tests.tcp_relay import TcpRelay
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.ledger import unaccounted
from whetstone.rollout.remote_flow import RemoteFlow
from whetstone.rollout.replica import RolloutReplica
from whetstone.rollout.service.client import FlowClient
from whetstone.rollout.state import Offer

# A batch that waits for the oldest prompt would wait for a replica that is held.
RULES = FlowRules(prompts_per_step=4, staleness=1, batch_composition="drop", refill_rounds=20, silence_s=1.0)


class HeldEngine(SeededEngine):
    """Writes nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        await self.may.wait()
        async for completion in super().generate(request):
            yield completion


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FlowProcess]:
    with FlowProcess(tmp_path, RULES, NAMES, 5) as running:
        yield running


class Trainer:
    """Trains, and notes the draws that it was given."""

    def __init__(self, server: FlowProcess) -> None:
        self.client = FlowClient(server.url, IDENTITY, give_up_s=ENOUGH_S)
        self._flow = RemoteFlow(self.client, wait_s=ENOUGH_S)
        self.version = 0
        self.told: list[int] = []

    async def steps(self, count: int) -> None:
        for _ in range(count):
            await self._flow.publish(Offer(self.version))
            batch = await self._flow.next_batch(self.version)
            assert len(batch.batch.groups) == RULES.prompts_per_step
            self.told += [group.meta["draw"] for group in batch.sampled]
            self.version += 1

    async def counts(self) -> dict[str, int]:
        """What the flow has counted; all prompts and tokens are in one place, and no prompt came twice."""
        status = await self.client.status()
        where = status["models"]["policy"]["accounts"]
        assert unaccounted(status["models"]["policy"]["tokens"]) == 0
        assert sum(where.values()) == status["drawn"], where
        assert where["trained"] == RULES.prompts_per_step * self.version
        assert len(set(self.told)) == len(self.told)
        return status["counts"]


async def until(condition: Callable[[], Awaitable[Any]], what: str) -> None:
    async with asyncio.timeout(ENOUGH_S):
        while not await condition():  # noqa: ASYNC110 (it is asked of another process)
            await asyncio.sleep(0.01)


async def end(*workers: tuple[RolloutReplica, FlowClient], tasks: list[asyncio.Task[None]]) -> None:
    for one, _ in workers:
        one.drain()
    await asyncio.gather(*tasks)
    for _, client in workers:
        await client.close()


def test_a_full_disk_stops_the_flow_and_room_lets_it_go_on(server: FlowProcess, tmp_path: Path) -> None:
    async def run() -> None:
        trainer, one = Trainer(server), replica("one", server.url)
        tasks = [asyncio.create_task(one[0].run())]
        await trainer.steps(2)
        [log] = (tmp_path / "flow").glob("log-*")
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
        going_on = asyncio.create_task(trainer.steps(4))

        async def says_so() -> bool:
            return any("free some space" in line.get("why", "") for line in server.said())

        await until(says_so, "the flow to say that its disk is full")
        assert not going_on.done()
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        await going_on
        await end(one, tasks=tasks)
        await trainer.counts()
        await trainer.client.close()

    asyncio.run(run())
    assert server.end() == 0


def test_a_replica_that_was_cut_off_loses_its_prompts_and_continues(server: FlowProcess) -> None:
    async def run() -> None:
        trainer, held = Trainer(server), HeldEngine()
        with TcpRelay(server.port) as wire:
            near, far = replica("near", server.url), replica("far", wire.url, held)
            tasks = [asyncio.create_task(one.run()) for one, _ in (far, near)]
            going_on = asyncio.create_task(trainer.steps(2))

            async def has_prompts() -> bool:
                replicas = (await trainer.client.status())["replicas"]
                return bool(replicas.get("far", {}).get("holds"))

            await until(has_prompts, "prompts for the far one")
            await going_on
            wire.hold()
            held.may.set()  # it finishes, and nobody hears of it

            async def is_given_up() -> bool:
                return (await trainer.counts()).get("freed/dead", 0) > 0

            await until(is_given_up, "the far one to be given up")
            await trainer.steps(3)
            assert not far[0].receipts
            wire.mend()

            async def is_told() -> bool:
                return far[0].receipts["revoked"] + far[0].receipts["duplicate"] > 0

            await until(is_told, "the far one to be told that its groups are not wanted any more")

            async def works_again() -> bool:
                await trainer.steps(1)
                return far[0].receipts["taken"] > 0

            await until(works_again, "the far one to work again")
            await end(near, far, tasks=tasks)
        await trainer.counts()
        await trainer.client.close()

    asyncio.run(run())
    assert server.end() == 0
