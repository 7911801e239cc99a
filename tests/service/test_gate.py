"""Who goes next: every place is handed on, whatever became of those who waited for it."""

from __future__ import annotations

import asyncio

import pytest

from whetstone.core.http.refusal import RequestRefused
from whetstone.service.fair_queue import Gate


async def _hold(gate: Gate, client: str, order: list[str], seconds: float = 60.0) -> None:
    async with gate.place(client, asyncio.get_running_loop().time() + seconds):
        order.append(client)
        await asyncio.sleep(0)


def test_places_go_round_the_clients() -> None:
    async def order() -> list[str]:
        gate, found = Gate(1, 100), list[str]()
        await asyncio.gather(*(_hold(gate, client, found) for client in "aaaab"))
        assert (gate.taken, gate.waiting) == (0, 0)
        return found

    assert asyncio.run(order()) == ["a", "a", "b", "a", "a"]


def test_a_wait_that_is_cancelled_as_a_place_is_granted_loses_no_place() -> None:
    async def check() -> None:
        gate = Gate(1, 100)
        async with gate.place("a", asyncio.get_running_loop().time() + 60):
            waiting = [asyncio.create_task(_hold(gate, "b", [])) for _ in range(3)]
            await asyncio.sleep(0)
            for each in waiting[:2]:
                each.cancel()  # and the place is handed on before they have noticed
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in results] == [asyncio.CancelledError] * 2 + [type(None)]
        assert (gate.taken, gate.waiting) == (0, 0)

    asyncio.run(check())


def test_what_would_come_too_late_is_refused_with_the_time_of_another_try() -> None:
    async def check() -> None:
        gate = Gate(1, 1)
        soon = asyncio.get_running_loop().time() + 0.01
        async with gate.place("a", soon):
            with pytest.raises(RequestRefused) as refused:
                gate.admit("b", soon)
            assert (refused.value.status, refused.value.code) == (503, "busy")
            assert refused.value.retry_after_s
            with pytest.raises(RequestRefused) as late:
                await _hold(gate, "b", [], 0.01)
            assert late.value.status == 504
        assert (gate.taken, gate.waiting) == (0, 0)

    asyncio.run(check())


def test_places_that_are_added_are_taken_and_those_taken_away_are_not_handed_on() -> None:
    async def check() -> None:
        gate, leave = Gate(1, 100), asyncio.Event()

        async def hold(client: str) -> None:
            async with gate.place(client, asyncio.get_running_loop().time() + 60):
                await leave.wait()

        holding = [asyncio.create_task(hold(client)) for client in "aabb"]
        await asyncio.sleep(0)
        assert (gate.taken, gate.waiting) == (1, 3)
        gate.resize(3)
        assert (gate.taken, gate.waiting) == (3, 1)
        gate.resize(1)
        await asyncio.sleep(0)
        leave.set()
        await asyncio.gather(*holding)
        assert (gate.taken, gate.waiting) == (0, 0)

    asyncio.run(check())
