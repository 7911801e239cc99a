"""A flow and its client against impossible numbers, bytes that are no text, and waits without an end."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.rollout.doubles import MemoryLog, facts_at, finish, started, take
from tests.rollout.flow_process import IDENTITY, FlowProcess
from whetstone.core.errors import UserError
from whetstone.rollout.async_flow import AsyncFlow
from whetstone.rollout.file_log import FileLog
from whetstone.rollout.flow_rules import FlowRefusal, FlowRules
from whetstone.rollout.group_facts import MOST_TOKENS, GroupFacts
from whetstone.rollout.protocol import LeaseRequest
from whetstone.rollout.scheduler import FlowScheduler
from whetstone.rollout.service import wire
from whetstone.rollout.service.client import FlowClient
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import Offer, new_state

RULES = FlowRules(prompts_per_step=2, staleness=1)
HUGE = 2**63 - 1
NAN = float("nan")


def sampled(scheduler: FlowScheduler) -> None:
    """Deliver a group for each lease of a replica."""
    version = scheduler.state.models["policy"].newest
    for grant in take(scheduler, "r", 4, version):
        finish(scheduler, "r", grant, version=version)


def test_an_impossible_checkpoint_deletes_no_batch() -> None:
    scheduler = started(RULES)
    sampled(scheduler)
    assert scheduler.next_batch("policy", 0) is not None
    for version in (2, 2**40, HUGE, -1, -HUGE):
        with pytest.raises(FlowRefusal):
            scheduler.checkpoint_saved("policy", version)
    assert scheduler.next_batch("policy", 0) is not None
    for version in (0, 1):
        scheduler.checkpoint_saved("policy", version)
    assert scheduler.state.models["policy"].checkpoints == [0, 1]


@pytest.mark.parametrize("version", [-1, -3, -HUGE, 1, HUGE])
def test_weights_of_an_impossible_version_are_refused(version: int) -> None:
    scheduler = started(RULES)
    with pytest.raises(FlowRefusal):
        scheduler.publish("policy", Offer(version, "tcp://x:1"))
    assert (scheduler.state.models["policy"].version, scheduler.state.models["policy"].offer) == (0, None)


@pytest.mark.parametrize(
    ("drawn", "unused"),
    [(4, [-1]), (4, [4]), (4, [1, 2**50]), (-4, []), (-4, [-5]), (0, [0]), (HUGE, []), (2**60, [2**59])],
)
def test_a_trainer_with_draws_that_were_never_drawn_is_refused(drawn: int, unused: list[int]) -> None:
    scheduler = FlowScheduler(RULES, PromptSource(["p", "q"], 0), MemoryLog(), 0.0)
    with pytest.raises(FlowRefusal, match="prompts drawn"):
        scheduler.resume("policy", 5, drawn, unused)
    assert scheduler.state.is_new
    scheduler.resume("policy", 5, 4, [3, 1, 3])
    assert sorted(scheduler.state.pending) == [1, 3]


@pytest.mark.parametrize("tokens", [MOST_TOKENS + 1, HUGE, 2**64 - 1])
def test_a_group_with_more_tokens_than_anybody_samples_is_invalid(tokens: int) -> None:
    with pytest.raises(ValueError, match="number of tokens"):
        facts_at("p", "s", "", [0.0, 1.0], [1, tokens], 0)
    packed = msgspec.msgpack.encode(["p", "s", "", [0.0], [{0: tokens}], [""]])
    with pytest.raises(wire.MessageError):
        wire.decode(packed, GroupFacts)


def test_reports_of_impossible_progress_change_nothing_and_the_log_can_be_written(tmp_path: Path) -> None:
    log = FileLog(tmp_path, "run", file_bytes=1)  # each event writes the whole state
    log.begin(new_state(("policy",)))
    scheduler = FlowScheduler(RULES, PromptSource(["p", "q"], 0), log, 0.0, new_state(("policy",)))
    scheduler.resume("policy", 0, 0, [])
    grants = scheduler.take("r", holding=[], room=4, versions={"policy": 0}, now=0.0).leases
    for number in range(4):
        progress = {grant.serial: {"policy": (HUGE, 2**40)} for grant in grants}
        scheduler.report("r", progress, f"process {number}")
    assert scheduler.state.models["policy"].ledger.generated == 0
    assert all(lease.oldest == {"policy": 0} for lease in scheduler.state.leases.values())
    scheduler.report("r", {grants[0].serial: {"policy": (7, 0)}}, "process 5")
    assert scheduler.state.models["policy"].ledger.generated == 7
    log.close()


@pytest.mark.parametrize("wait_s", [NAN, -1.0, 0.0, float("-inf")])
def test_a_second_process_with_an_impossible_wait_is_answered(wait_s: float) -> None:
    """A sleep of NaN seconds never ended."""

    async def ask() -> Any:
        flow = AsyncFlow(started(RULES))
        await flow.take(LeaseRequest("r", [], 0, {"policy": Offer(0)}, incarnation="one"))
        second = LeaseRequest("r", [], 0, {"policy": Offer(0)}, wait_s=wait_s, incarnation="two")
        return await asyncio.wait_for(flow.take(second), 20.0)

    assert asyncio.run(ask()).leases == []


@pytest.mark.process
@pytest.mark.parametrize("figure", [NAN, float("inf"), float("-inf")])
def test_the_status_is_json_whatever_load_a_replica_reports(tmp_path: Path, figure: float) -> None:
    with FlowProcess(tmp_path, RULES, ["p"], 5) as server:
        headers = {wire.RUN_HEADER: IDENTITY.digest}
        request = LeaseRequest("r", [], 0, {"policy": Offer(0)}, {"tokens": figure, "idle": 0.5})
        body = msgspec.msgpack.encode(request)
        answer = httpx2.post(f"{server.url}/v1/take", content=body, headers=headers, timeout=60)
        assert answer.status_code == 200
        client = FlowClient(server.url, IDENTITY)
        status = asyncio.run(client.status(single_attempt=True))
        assert status["replicas"]["r"]["load"] == {"tokens": None, "idle": 0.5}


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Generator[str]:
    """A server that gives the same answer to every request."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.drawn(3)
@pytest.mark.process
@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (200, b'{"drawn": NaN}', {}),
        (200, b'{"drawn": "\xff\xfe"}', {}),
        (200, b"[" * 100_000, {}),
        (200, b"<html>", {}),
        (200, b"not gzip", {"content_encoding": "gzip"}),
        (502, b'{"error": {"code": "\xff\xfe", "message": ""}}', {}),
        (502, b'{"error": ' * 100_000, {}),
        (502, b"<html>caf\xe9</html>", {}),
    ],
)
def test_an_answer_that_no_flow_gives_is_a_user_error(
    status: int, body: bytes, headers: dict[str, str]
) -> None:
    async def ask(url: str) -> None:
        client = FlowClient(url, IDENTITY, give_up_s=0.2)
        try:
            with pytest.raises(UserError):
                await client.status(single_attempt=True)
            with pytest.raises(UserError):
                await client.hello()
        finally:
            await client.close()

    with answering(status, body, **headers) as url:
        asyncio.run(ask(url))


def test_a_log_with_any_damaged_byte_is_read_up_to_it_or_refused(tmp_path: Path) -> None:
    log = FileLog(tmp_path, "run")
    log.begin(new_state(("policy",)))
    scheduler = FlowScheduler(RULES, PromptSource(["p", "q"], 0), log, 0.0, new_state(("policy",)))
    scheduler.resume("policy", 0, 0, [])
    sampled(scheduler)
    log.close()
    path = tmp_path / "log-00000001"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x81]) + whole[place + 1 :])
        try:
            again = FileLog(tmp_path, "run")
        except UserError:
            continue
        assert again.state is None or again.truncated_bytes
        again.close()


def test_a_log_folder_with_other_files_is_read(tmp_path: Path) -> None:
    log = FileLog(tmp_path, "run")
    log.begin(new_state(("policy",)))
    log.close()
    for name in ("log-1-copy-2", "log-00000001.bak1", "log-00000009 (1)2", "log-1\u00b22"):
        (tmp_path / name).write_text(json.dumps("kept"))
    again = FileLog(tmp_path, "run")
    assert again.state is not None
    again.close()
    assert (tmp_path / "log-00000001.bak1").exists()
