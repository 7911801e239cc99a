"""The one loop in which runs are read, measured and ended."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence

from whetstone.sandbox.job import Ended, RunResult, Stopped
from whetstone.sandbox.priority import Turn, turn
from whetstone.sandbox.run import PARTNER_GRACE_S, Run

Grace = Callable[[RunResult], float | None]


def partner_grace(leader: RunResult) -> float | None:
    """What a partner gets, however the leader ended."""
    return PARTNER_GRACE_S


def supervise(runs: Sequence[Run], grace: Grace = partner_grace) -> list[RunResult]:
    """Drive runs of different sandboxes to their end; results in their order.

    ``runs[0]`` leads: when it has ended, the others get the seconds that ``grace`` gives for its result,
    and are then killed (KILLED); with None they go on to their own end. A partner that ends first changes
    nothing for the leader, except that its link reads end of file.
    Raises SandboxFault if a fork-server fails; every run is then over and its fork-server gone. Raises
    Stopped, with every run over, once the leader's ``stop_fd`` became readable.
    """
    try:
        # Most runs are alone and over before anybody would look at them.
        if len(runs) == 1 and runs[0].talk is None and runs[0].ends_at_once():
            stopped = False
        else:
            with turn() as mine:
                stopped = _drive(runs, grace, mine)
    except BaseException:
        for run in runs:
            run.give_up()
        raise
    finally:
        # The runs wait at the same time, so their waits are not added up.
        if runs[0].lost is not None:
            runs[0].lost.seconds += max(run.lost_s for run in runs)
    if stopped:
        raise Stopped
    return [run.result() for run in runs]


def _drive(runs: Sequence[Run], grace: Grace, mine: Turn) -> bool:
    """Until every run has ended; whether the caller's ``stop_fd`` asked for it."""
    poller = select.poll()
    stopped = False

    def stop() -> bool:
        nonlocal stopped
        stopped = True
        for run in runs:
            run.kill(Ended.KILLED)
        return False

    handlers: dict[int, tuple[Run, Callable[[], bool]]] = {}

    def watch(run: Run, table: dict[int, Callable[[], bool]]) -> None:
        for fd, handler in table.items():
            handlers[fd] = (run, handler)
            poller.register(fd, select.POLLIN)

    for run in runs:
        watch(run, run.handlers())
    if runs[0].stop_fd is not None:
        watch(runs[0], {runs[0].stop_fd: stop})
    lasting: set[Run] = set()
    partners_end: float | None = None
    leader_ended = False
    while active := [run for run in runs if not run.ended]:
        now = time.monotonic()
        if runs[0].ended and not leader_ended:
            leader_ended, grace_s = True, grace(runs[0].result())
            partners_end = None if grace_s is None else now + grace_s
        if partners_end is not None and now >= partners_end:
            for partner in active:
                partner.kill(Ended.KILLED)
        wait_s = min(run.next_tick for run in active) - now
        _handle(poller, handlers, max(wait_s, 0.0))
        now = time.monotonic()
        for run in active:
            if not run.ended and now >= run.next_tick:
                if run not in lasting:
                    lasting.add(run)
                    watch(run, run.output_handlers())
                run.tick(now)
                if run.has_several:
                    mine.go_first()  # their wakings may leave us no core at all
    return stopped


def _handle(poller: select.poll, handlers: dict[int, tuple[Run, Callable[[], bool]]], wait_s: float) -> None:
    """Wait for something to read and read it; forget the descriptors of what is through."""
    for fd, _ in poller.poll(wait_s * 1000.0):
        if fd not in handlers:
            continue  # its run ended a moment ago, in this very round
        run, handler = handlers[fd]
        more = handler()
        through = [other for other, (owner, _) in handlers.items() if owner is run] if run.ended else [fd]
        if run.ended or not more:
            for gone in through:
                del handlers[gone]
                poller.unregister(gone)
