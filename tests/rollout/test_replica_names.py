"""Of two processes that go by one name the flow works with one, and tells the other what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rollout.flow_process import ENOUGH_S, IDENTITY, FlowProcess
from tests.rollout.test_flow_service import NAMES, SeededEngine, replica, train
from whetstone.rollout.flow_rules import FlowRefusal, FlowRules
from whetstone.rollout.leasing import TAKEOVER_S, ReplicaState
from whetstone.rollout.protocol import LeaseRequest, LeaseResponse, LeasesReturned
from whetstone.rollout.remote_flow import RemoteFlow
from whetstone.rollout.service.client import FlowClient
from whetstone.rollout.state import Offer
from whetstone.run.roles.rollout import unique_name

pytestmark = pytest.mark.process

# A question is answered after a third of the silence at most, so a replica is heard that often.
RULES = FlowRules(prompts_per_step=4, staleness=1, refill_rounds=20, silence_s=6.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FlowProcess]:
    with FlowProcess(tmp_path, RULES, NAMES, 5) as running:
        yield running


def ask(incarnation: str, holding: list[int] | None = None, wait_s: float = 0.0) -> LeaseRequest:
    return LeaseRequest("r", holding or [], 4, {"policy": Offer(0)}, {}, wait_s, incarnation)


def test_the_second_replica_of_a_name_is_refused_and_the_first_goes_on(server: FlowProcess) -> None:
    async def run() -> None:
        first, client = replica("same", server.url, SeededEngine(0.01))
        second, its = replica("same", server.url)
        trainer = FlowClient(server.url, IDENTITY, give_up_s=ENOUGH_S)
        flow = RemoteFlow(trainer, wait_s=ENOUGH_S)
        working = asyncio.create_task(first.run())
        await train(flow, 0, 1)
        with pytest.raises(FlowRefusal, match=r"another process is the replica `same`; .*--name NAME"):
            await second.run()
        assert not second.receipts
        await train(flow, 1, 4)
        assert not working.done()
        assert set(first.receipts) == {"taken"}
        status = await trainer.status()
        assert list(status["replicas"]) == ["same"]
        first.drain()
        await working
        for one in (client, its, trainer):
            await one.close()

    asyncio.run(run())


def test_a_replica_that_was_killed_is_given_its_prompts_again_at_once(server: FlowProcess) -> None:
    async def run() -> None:
        killed, again, trainer = (FlowClient(server.url, IDENTITY) for _ in range(3))
        await trainer.publish("policy", Offer(0))
        leases = (await killed.take(ask("a"))).leases
        assert len(leases) == 4
        held = [lease.serial for lease in leases]
        waiting = asyncio.create_task(killed.take(ask("a", held, 20.0)))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await killed.close()
        began = asyncio.get_running_loop().time()
        news = LeaseResponse([], [], {})
        while not news.leases:
            news = await again.take(ask("b", wait_s=1.0))
            assert asyncio.get_running_loop().time() - began < TAKEOVER_S
        assert news.leases == leases
        # What the old process still says under this name changes nothing.
        ghost = FlowClient(server.url, IDENTITY)
        await ghost.give_back(LeasesReturned("r", [], "it ends", True, "a"))
        assert (await again.take(ask("b", held))).revoked == []
        for client in (again, trainer, ghost):
            await client.close()

    asyncio.run(run())


def test_a_silent_process_loses_its_name_and_a_speaking_one_keeps_it() -> None:
    silent = ReplicaState(last_heard=0.0, incarnation="a")
    assert not silent.claim_name("r", "b", 1.0)
    assert not silent.claim_name("r", "b", TAKEOVER_S)
    assert silent.claim_name("r", "b", TAKEOVER_S + 2)
    assert not silent.claim_name("r", "a", TAKEOVER_S + 3)
    speaking = ReplicaState(last_heard=0.0, incarnation="a")
    assert not speaking.claim_name("r", "b", 1.0)
    assert not speaking.claim_name("r", "c", 1.5)
    speaking.last_heard = 2.0
    for rival in ("b", "c"):
        with pytest.raises(FlowRefusal, match="another process"):
            speaking.claim_name("r", rival, 3.0)
    assert speaking.claim_name("r", "a", 4.0)


def test_default_names_differ_where_host_and_process_id_repeat() -> None:
    assert unique_name() != unique_name()
