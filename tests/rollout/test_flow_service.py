"""A flow over HTTP gives the batches of the synchronous flow, also when it or a replica is killed; it answers
whatever is sent to it; roles that do not belong together are told so."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.rollout.flow_process import ENOUGH_S, IDENTITY, FlowProcess
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.scratch import build_tokenizer
from whetstone.environments.environment import Environment
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt import Prompt
from whetstone.environments.replies import EngineReplies
from whetstone.rollout.flow_rules import FlowRefusal, FlowRules
from whetstone.rollout.identity import Identity
from whetstone.rollout.ledger import unaccounted
from whetstone.rollout.local_flow import LocalFlow
from whetstone.rollout.protocol import DeliveryRequest, FlowBatch, LeaseRequest, TrainerRequest
from whetstone.rollout.remote_flow import RemoteFlow
from whetstone.rollout.replica import RolloutReplica
from whetstone.rollout.sampling import GroupSampler, episodes
from whetstone.rollout.service import wire
from whetstone.rollout.service.app import ENDPOINTS
from whetstone.rollout.service.client import FlowClient
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import Offer

pytestmark = pytest.mark.process

PROBLEMS = [Problem(f"p{n}", "s", StdinTests([StdinCase("", "1")])) for n in range(7)]
NAMES = [problem.id for problem in PROBLEMS]
RULES = FlowRules(prompts_per_step=4, refill_rounds=2, silence_s=1.0)
STEPS = 6
SPECS = {"policy": algorithm_named("dapo", {"refill_rounds": 2})}
NO_JUDGE: Any = None


class SeededEnvironment(Environment):
    """Rewards that follow from the reply alone."""

    def prompt(self, problem: Problem) -> Prompt:
        return Prompt(problem.id, "", chat=False)

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        conversation = await episode.begin()
        drawn = conversation.reply.drawn
        assert drawn is not None
        reward = None if problem.id == "p6" else float(drawn.token_ids[0] % 2)
        return Rollout({"policy": [conversation.sample(reward=reward)]})


class SeededEngine:
    """Tokens that follow from the request's seed and the weights; as slow as it is told to be."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.version, self.pause_s = 0, pause_s

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        for index in range(request.n):
            token = random.Random(f"{request.seed} {index} {self.version}").randrange(4, 90)
            version = self.version
            await asyncio.sleep(self.pause_s)
            yield Completion(index, [token], [-0.5], [version], "stop")

    def check(self, request: GenerationRequest) -> None: ...


class VersionsOnly:
    """Weights that are nothing but their version."""

    def __init__(self, engine: SeededEngine) -> None:
        self._engine = engine
        self.serving: Mapping[str, Offer] = {"policy": Offer(0)}

    async def apply(self, model: str, offer: Offer) -> None:
        self.serving = {model: offer}
        self._engine.version = offer.version


def sampler(engine: Any) -> tuple[GroupSampler, dict[str, EngineReplies]]:
    tokenizer: Any = build_tokenizer(["p0123456789"], 300)
    replies = {"policy": EngineReplies(engine, tokenizer, Sampling(max_tokens=4), max_prompt_tokens=64)}
    return GroupSampler(SeededEnvironment(), NO_JUDGE, replies, 3, 5, None), replies


def plain(batch: FlowBatch) -> dict[str, Any]:
    """A batch without the flow's stamps."""

    def groups(those: list[Any]) -> list[Any]:
        return [msgspec.structs.replace(group, meta={"source": group.meta["source"]}) for group in those]

    return {"kept": groups(batch.batch.groups), "all": groups(batch.sampled), "why": batch.batch.dropped}


async def synchronous(steps: int) -> list[dict[str, Any]]:
    engine = SeededEngine()
    sample, replies = sampler(engine)
    source = PromptSource(PROBLEMS, 5)
    flow = LocalFlow(source, sample, replies["policy"], SPECS["policy"], prompts_per_step=4)
    batches: list[dict[str, Any]] = []
    for version in range(steps):
        engine.version = version
        batches.append(plain(await flow.next_batch(version)))
    return batches


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FlowProcess]:
    with FlowProcess(tmp_path, RULES, NAMES, 5) as running:
        yield running


def replica(name: str, url: str, engine: SeededEngine | None = None) -> tuple[RolloutReplica, FlowClient]:
    engine = engine or SeededEngine()
    client = FlowClient(url, IDENTITY, give_up_s=ENOUGH_S)
    problems = {problem.id: problem for problem in PROBLEMS}
    sample = episodes(sampler(engine)[0], problems, SPECS)
    return RolloutReplica(name, client, sample, VersionsOnly(engine), room=4), client


async def train(flow: RemoteFlow, first: int, steps: int) -> list[dict[str, Any]]:
    batches: list[dict[str, Any]] = []
    for version in range(first, steps):
        await flow.publish(Offer(version, run_id="test"))
        batches.append(plain(await flow.next_batch(version)))
    return batches


def test_staleness_0_over_http_is_the_synchronous_flow_through_any_kill(server: FlowProcess) -> None:
    async def run() -> list[dict[str, Any]]:
        trainer_client = FlowClient(server.url, IDENTITY, give_up_s=ENOUGH_S)
        flow = RemoteFlow(trainer_client, wait_s=ENOUGH_S)
        doomed, doomed_client = replica("doomed", server.url, SeededEngine(0.01))
        first = asyncio.create_task(doomed.run())
        batches = await train(flow, 0, 2)
        saved = flow.state()
        batches += await train(flow, 2, 3)
        # The replica vanishes with leases in its hands, and the flow is killed while nobody works.
        await doomed_client.close()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        server.kill()
        other, other_client = replica("other", server.url)
        second = asyncio.create_task(other.run())
        going_on = asyncio.create_task(train(flow, 3, 4))
        await asyncio.to_thread(server.start)
        batches += await going_on
        # The trainer goes back to its checkpoint, and is given the same once more.
        again = RemoteFlow(trainer_client, wait_s=ENOUGH_S)
        again.restore(saved)
        replayed = await train(again, 2, STEPS)
        assert replayed[:2] == batches[2:]
        other.drain()
        await second
        status = await trainer_client.status()
        counts = status["counts"]
        tokens = status["models"]["policy"]["tokens"]
        assert unaccounted(tokens) == 0
        # Each group has three tokens. Batch 2 had been trained before the trainer went back; the last batch
        # is in training.
        kept = [3 * len(batch["kept"]) for batch in (*batches[:2], *replayed)]
        assert tokens["replayed"] == kept[2]
        assert tokens["in_flight/training"] == kept[-1]
        assert tokens["trained"] == sum(kept) - kept[2] - kept[-1]
        assert counts["groups/replayed"] == sum(len(batch["kept"]) for batch in batches[2:])
        await trainer_client.close()
        await other_client.close()
        return batches[:2] + replayed

    assert asyncio.run(run()) == asyncio.run(synchronous(STEPS))
    assert server.end() == 0


def test_two_replicas_and_stale_batches_and_each_draw_once(tmp_path: Path) -> None:
    rules = FlowRules(prompts_per_step=4, staleness=2, refill_rounds=20, silence_s=5.0)
    server = FlowProcess(tmp_path, rules, NAMES, 5)

    async def run() -> None:
        made = [replica("quick", server.url), replica("slow", server.url, SeededEngine(0.02))]
        running = [asyncio.create_task(one.run()) for one, _ in made]
        client = FlowClient(server.url, IDENTITY)
        flow = RemoteFlow(client, wait_s=ENOUGH_S)
        draws: list[int] = []
        for version in range(STEPS):
            await flow.publish(Offer(version))
            batch = await flow.next_batch(version)
            assert len(batch.batch.groups) == 4
            assert all(0 <= group.meta["staleness"] <= 2 for group in batch.batch.groups)
            draws += [group.meta["draw"] for group in batch.sampled]
        assert len(draws) == len(set(draws))
        status = await client.status()
        assert set(status["replicas"]) == {"quick", "slow"}
        assert status["models"]["policy"]["audit"]["audit/trained/groups"] == 4 * STEPS
        tokens = status["models"]["policy"]["tokens"]
        assert unaccounted(tokens) == 0
        assert tokens["trained"] == 3 * 4 * (STEPS - 1)
        for (one, its), task in zip(made, running, strict=True):
            one.drain()
            await task
            await its.close()
        assert (await client.status())["replicas"] == {}
        await client.close()

    try:
        asyncio.run(run())
    finally:
        server.kill()


def test_roles_of_other_runs_or_without_a_token_are_told_so(tmp_path: Path) -> None:
    server = FlowProcess(tmp_path, RULES, NAMES, 5, tokens=("right",))

    async def asked(client: FlowClient) -> None:
        try:
            await client.take(LeaseRequest("r", [], 4, {"policy": Offer(0)}))
        finally:
            await client.close()

    try:
        with pytest.raises(UserError, match="the token is unknown"):
            asyncio.run(asked(FlowClient(server.url, IDENTITY, token="wrong")))
        with pytest.raises(UserError, match="differs from the flow's in `test`"):
            asyncio.run(asked(FlowClient(server.url, Identity({"test": "2"}), token="right")))
        with pytest.raises(UserError, match="install the same version"):
            asyncio.run(asked(FlowClient(server.url, Identity({"test": "1"}, "0.0.1"), token="right")))
        client = FlowClient(server.url, IDENTITY, token="right")
        with pytest.raises(FlowRefusal, match="models are policy"):
            asyncio.run(client.batch(TrainerRequest("other", 0)))
        asyncio.run(asked(FlowClient(server.url, IDENTITY, token="right")))
    finally:
        server.kill()
    with pytest.raises(UserError, match="start it there"):
        asyncio.run(asked(FlowClient(server.url, IDENTITY, token="right", give_up_s=0.2)))


def test_a_share_that_fits_nowhere_and_a_batch_that_never_comes_are_named(server: FlowProcess) -> None:
    async def run() -> None:
        client = FlowClient(server.url, IDENTITY)
        flow = RemoteFlow(client, wait_s=0.0)
        with pytest.raises(UserError, match="there is no rollout replica"):
            await flow.next_batch(0)
        with pytest.raises(FlowRefusal, match="room for 3 prompts, but a share of a round has 4"):
            await client.take(LeaseRequest("small", [], 3, {"policy": Offer(0)}))
        with pytest.raises(FlowRefusal, match="batches of 0 to 0"):
            await client.batch(TrainerRequest("policy", 7))
        await client.close()

    asyncio.run(run())


def garbage(rng: random.Random) -> Iterator[bytes]:
    """Bodies that are nothing, nearly something, or something else."""
    good = [
        msgspec.msgpack.encode(LeaseRequest("r", [1], 4, {"policy": Offer(0)})),
        msgspec.msgpack.encode(TrainerRequest("policy", 0)),
        wire.frame(wire.encode(DeliveryRequest("r", []))),
        msgspec.msgpack.encode(IDENTITY),
        msgspec.msgpack.encode({"replica": "r" * 1000, "items": [[1, 2, {"policy": [1, -5, 0]}]]}),
    ]
    yield b""
    yield b"\xff\xff\xff\xff" + bytes(20)
    yield b"\x91" * 5000
    for body in good:
        yield body
        for _ in range(12):
            data = bytearray(body)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            yield bytes(data[: rng.randint(1, len(data))])


def test_every_endpoint_answers_whatever_is_sent(server: FlowProcess) -> None:
    rng = random.Random(4)
    headers = {wire.RUN_HEADER: IDENTITY.digest}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=ENOUGH_S, trust_env=False) as client:
        for path in ENDPOINTS:
            for body in garbage(rng):
                answer = client.post(path, content=body)
                assert answer.status_code in (200, 400, 405, 409), (path, body, answer.text)
                if answer.status_code != 200:
                    assert json.loads(answer.content)["error"]["message"]
        assert client.post("/v1/take", content=b"x", headers={wire.RUN_HEADER: "?"}).status_code == 409
        assert client.get("/v1/nothing").status_code == 404
        assert client.get("/v1/status").json()["drawn"] == 0
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        run = f"{wire.RUN_HEADER}: {IDENTITY.digest}\r\n"
        raw.sendall(
            f"POST /v1/deliver HTTP/1.1\r\nhost: localhost\r\n{run}content-length: {1 << 40}\r\n\r\n".encode()
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
    assert not [line for line in server.said() if line.get("error", "").startswith("Traceback")]
    assert server.end() == 0
