"""What the machine keeps from a program, a core or a lock in its kernel, is not the program's time."""

from __future__ import annotations

import pytest

from whetstone.sandbox import EndReason, RunLimits, Sandbox, SandboxJob, Tier
from whetstone.sandbox.cpu_starvation import StallObservation, ThreadWait, WallClock

LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20, wall_s=0.4)
BEHIND_VFORK = b"""
import os, time
os.mkfifo("pipe")
if os.fork() == 0:
    time.sleep(SECONDS)
    os.close(os.open("pipe", os.O_WRONLY))
    os._exit(0)
# The parent is deaf in the kernel until the child executes, which waits for somebody to write.
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "pipe", os.O_RDONLY, 0)])
os.wait(), os.wait()
print("done")
"""
COMPUTES = StallObservation(ready=True, computes=True)
SLEPT_AGAIN = StallObservation(ready=True)
STALLED = StallObservation(stalled=True)
NOT_HELD = StallObservation()


def behind_vfork(tier: Tier, seconds: float) -> tuple[EndReason, bytes]:
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    with Sandbox({}, tier=tier) as sandbox:
        source = BEHIND_VFORK.replace(b"SECONDS", str(seconds).encode())
        result = sandbox.run(SandboxJob("script", source, LIMITS))
    return result.ended, result.stdout


def test_time_held_up_in_the_kernel_is_not_the_programs(tier: Tier) -> None:
    assert behind_vfork(tier, 1.0) == (EndReason.EXITED, b"done\n")


def test_who_is_held_up_by_its_own_doing_is_excused_only_so_long(tier: Tier) -> None:
    assert behind_vfork(tier, 600.0) == (EndReason.WALL_LIMIT, b"")


def after(*looks: tuple[float, StallObservation]) -> WallClock:
    """The wall clock of a run that never computed, after readings at these intervals that saw these
    stalls."""
    wall_clock, now = WallClock(0.0, 1.0, 5.0), 0.0
    for seconds, held in looks:
        now += seconds
        wall_clock.record_usage(now, 0.0, held)
    return wall_clock


def is_over(wall_clock: WallClock, now: float) -> bool:
    return wall_clock.is_over(now, ThreadWait(0.0, False), start_time=0.0)


@pytest.mark.parametrize("held", [COMPUTES, SLEPT_AGAIN, STALLED])
def test_a_run_has_its_whole_limit_in_addition_to_delays(held: StallObservation) -> None:
    wall_clock = after((2.0, held))
    assert not is_over(wall_clock, 2.9)
    assert is_over(wall_clock, 3.1)
    assert not wall_clock.starved


def test_a_run_that_sleeps_has_its_limit() -> None:
    assert is_over(after((1.1, NOT_HELD)), 1.1)


@pytest.mark.parametrize(
    ("looks", "starved"),
    [
        ([(5.1, COMPUTES)], True),
        ([(1.1, COMPUTES), (4.0, STALLED)], True),
        ([(0.1, COMPUTES), (5.0, STALLED)], False),
        ([(5.1, STALLED)], False),
        ([(5.1, SLEPT_AGAIN)], False),
        ([(1.1, SLEPT_AGAIN), (4.0, STALLED)], False),
    ],
    ids=["no core", "then no lock", "no lock and no crowd", "a disk", "sleeps", "sleeps, no lock"],
)
def test_only_a_crowd_makes_it_the_machines_failure(
    looks: list[tuple[float, StallObservation]], starved: bool
) -> None:
    wall_clock = after(*looks)
    assert is_over(wall_clock, 6.1)
    assert wall_clock.starved is starved


def test_time_in_which_a_run_computed_is_no_delay() -> None:
    wall_clock = WallClock(0.0, 1.0, 5.0)
    wall_clock.record_usage(2.0, 1.9, COMPUTES)
    assert is_over(wall_clock, 2.0)
    assert not is_over(after((2.0, COMPUTES)), 2.0)
