"""Unread data in sockets counts as memory, although no process holds it and no control group counts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.beside import data_beside
from whetstone.sandbox import EndReason, RunLimits, RunResult, Sandbox, SandboxJob, Tier, fork_server

pytestmark = pytest.mark.isolation

TEXTS: dict[str, str] = data_beside(__file__)["texts"]
FILL = TEXTS["fill"]
DATA = data_beside(__file__)
TOO_MUCH: dict[str, str] = DATA["too_much"]
LITTLE: dict[str, str] = DATA["little"]


@pytest.fixture(scope="module")
def ungrouped(tier: Tier) -> Iterator[Sandbox]:
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has one process and no listening socket there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server, "make_group", lambda: None)
        with Sandbox({}, tier=tier) as sandbox:
            yield sandbox


def ran(sandbox: Sandbox, code: str) -> RunResult:
    limits = RunLimits(20.0, 128 << 20, 1 << 20)
    return sandbox.run(SandboxJob("script", (FILL + code + "print('done')").encode(), limits))


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_unread_data_is_too_much_memory(ungrouped: Sandbox, name: str) -> None:
    assert ran(ungrouped, TOO_MUCH[name]).ended is EndReason.MEMORY_LIMIT


@pytest.mark.parametrize("name", LITTLE)
def test_sockets_with_little_data_count_nothing(ungrouped: Sandbox, name: str) -> None:
    result = ran(ungrouped, LITTLE[name])
    assert (result.ended, result.stdout) == (EndReason.EXITED, b"done\n"), result.stderr
    assert result.peak_bytes < 100 << 20


OF_ONE_PROCESS: dict[str, str] = DATA["of_one_process"]


@pytest.mark.parametrize("name", OF_ONE_PROCESS)
def test_a_process_that_its_control_group_stops_is_ended_at_once(tier: Tier, name: str) -> None:
    """It would otherwise wait until its wall time has passed, which a stall even prolongs."""
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has no listening socket there")
    with Sandbox({}, tier=tier) as sandbox:
        result = ran(sandbox, OF_ONE_PROCESS[name])
    assert result.ended is EndReason.MEMORY_LIMIT
    assert result.wall_s < 30
