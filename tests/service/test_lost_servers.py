"""A client bounds how often one program can take a server down, and keeps all other verdicts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.service_process import service, sum_problem
from tests.tcp_relay import TcpRelay
from whetstone.judge import Program, Verdict
from whetstone.service.client import JudgeClient

RIGHT = Program("python", "print(sum(map(int, input().split())))\n")
DEADLY = Program("python", "# deadly\nprint(3)\n")


def is_deadly(data: bytes, from_server: bool) -> bool:
    return b"# deadly" in data


@pytest.fixture
def relays(tmp_path: Path) -> Iterator[list[TcpRelay]]:
    with contextlib.ExitStack() as stack:
        found = list[TcpRelay]()
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            port = stack.enter_context(service(tmp_path / name)).port
            found.append(stack.enter_context(TcpRelay(port, is_deadly)))
        yield found


@pytest.mark.extended
@pytest.mark.process
def test_a_program_that_ends_its_servers_is_a_judge_error_after_four_losses(relays: list[TcpRelay]) -> None:
    with JudgeClient([relay.url for relay in relays]) as client:
        before = [client.submit(sum_problem(), RIGHT) for _ in range(12)]
        deadly = client.submit(sum_problem(), DEADLY)
        after = [client.submit(sum_problem(), RIGHT) for _ in range(12)]
        lost = deadly.result()
        assert (lost.verdict, lost.score) == (Verdict.JUDGE_ERROR, None)
        assert "servers were lost while they judged it" in lost.reason
        assert [each.result().verdict for each in [*before, *after]] == [Verdict.ACCEPTED] * 24
    assert 4 <= sum(relay.losses for relay in relays) <= 5  # a kept connection counts with the new one
