"""The loop that reads, measures and ends runs, with scheduling priority where the kernel allows it."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Generator, Sequence

from whetstone.sandbox.job import EndReason, RunResult, SandboxStopped
from whetstone.sandbox.run import PARTNER_GRACE_S, SandboxRun

Grace = Callable[[RunResult], float | None]


class SupervisorPriority:
    """Raises the priority of this thread above all computing processes (root; CAP_SYS_NICE).

    The thread sleeps between readings, so it uses little CPU time.
    """

    def __init__(self) -> None:
        self._before: tuple[int, os.sched_param] | None = None

    def raise_priority(self) -> None:
        """Raise the priority. Without the right to do so nothing changes."""
        if self._before is None:
            self._before = os.sched_getscheduler(0), os.sched_getparam(0)
            with contextlib.suppress(OSError):
                # RESET_ON_FORK: processes that this thread starts must not inherit the priority.
                os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))

    def restore(self) -> None:
        """Restore the previous priority."""
        if self._before is not None:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, *self._before)
            self._before = None


@contextlib.contextmanager
def supervisor_priority() -> Generator[SupervisorPriority]:
    """Yield an object that can raise the priority. At the end of the context the priority is restored."""
    priority = SupervisorPriority()
    try:
        yield priority
    finally:
        priority.restore()


def partner_grace(leader: RunResult) -> float | None:
    """Return the grace period of a partner, however the leader ended."""
    return PARTNER_GRACE_S


def supervise(runs: Sequence[SandboxRun], grace: Grace = partner_grace) -> list[RunResult]:
    """Run the supervision of runs in different sandboxes until all have ended. Returns their results in
    order.

    ``runs[0]`` leads. When it has ended, the others get the seconds that ``grace`` returns for its result,
    and are then killed (KILLED). None lets them run to their own end. A partner that ends first changes
    nothing for the leader, except that its link reads end of file. Raises SandboxFault if a fork-server
    fails; every run is then over, and its fork-server gone. Raises SandboxStopped, with every run over, once
    the leader's ``stop_fd`` became readable.
    """
    try:
        # Most runs are alone and end before the first reading.
        if len(runs) == 1 and runs[0].talk is None and runs[0].wait_for_first_reading():
            stopped = False
        else:
            with supervisor_priority() as priority:
                stopped = drive(runs, grace, priority)
    except BaseException:
        for run in runs:
            run.abandon()
        raise
    finally:
        # The runs wait at the same time, so their waits are not added up.
        if runs[0].lost is not None:
            runs[0].lost.seconds += max(run.lost_s for run in runs)
    if stopped:
        raise SandboxStopped
    return [run.result() for run in runs]


def drive(runs: Sequence[SandboxRun], grace: Grace, priority: SupervisorPriority) -> bool:
    """Run the loop until no run is ``supervised``. Returns whether the caller's ``stop_fd`` ended it."""
    poller = select.poll()
    stopped = False

    def stop() -> bool:
        nonlocal stopped
        stopped = True
        for run in runs:
            run.kill(EndReason.KILLED)
        return False

    handlers: dict[int, tuple[SandboxRun, Callable[[], bool]]] = {}

    def watch(run: SandboxRun, table: dict[int, Callable[[], bool]]) -> None:
        for fd, handler in table.items():
            handlers[fd] = (run, handler)
            poller.register(fd, select.POLLIN)

    for run in runs:
        watch(run, run.handlers())
    if runs[0].stop_fd is not None:
        watch(runs[0], {runs[0].stop_fd: stop})
    long_runs: set[SandboxRun] = set()
    partners_end: float | None = None
    leader_ended = False
    while active := [run for run in runs if run.supervised]:
        now = time.monotonic()
        if runs[0].ended and not leader_ended:
            leader_ended, grace_s = True, grace(runs[0].result())
            partners_end = None if grace_s is None else now + grace_s
        if partners_end is not None and now >= partners_end:
            for partner in active:
                partner.kill(EndReason.KILLED)
        wait_s = min(run.next_tick for run in active) - now
        _handle(poller, handlers, max(wait_s, 0.0))
        now = time.monotonic()
        for run in active:
            if not run.ended and now >= run.next_tick:
                if run not in long_runs:
                    long_runs.add(run)
                    watch(run, run.output_handlers())
                run.tick(now)
                if run.has_several:
                    # The wake-ups of many processes may leave the supervisor no core at all.
                    priority.raise_priority()
    return stopped


def _handle(
    poller: select.poll, handlers: dict[int, tuple[SandboxRun, Callable[[], bool]]], wait_s: float
) -> None:
    """Wait for readable descriptors and read them. Forget finished descriptors."""
    for fd, _ in poller.poll(wait_s * 1000.0):
        if fd not in handlers:
            continue  # its run has ended in this round
        run, handler = handlers[fd]
        more = handler()
        finished = [other for other, (owner, _) in handlers.items() if owner is run] if run.ended else [fd]
        if run.ended or not more:
            for finished_fd in finished:
                del handlers[finished_fd]
                poller.unregister(finished_fd)
