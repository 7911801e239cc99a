"""Which pages every run writes: found out before the first one, by running a small program.

A harness may say how its runs go instead (``REHEARSALS``): with what payload, and what they hear on their
link.

Our pages are shared with every process that we fork, until it or we write to them. So two looks tell what is
written: one at the very end of a run, which does not leave before; and one after some runs have been forked,
attended and reported as later ones will be, while an idle process shares our pages. What is written each
time is pinned.
"""

from __future__ import annotations

import _socket
import contextlib
import fcntl
import marshal
import os
import select
import signal
import struct
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from . import kernel, lockdown, pinned, wire
from .own_memory import DATA, Look, OwnMemory
from .program import Rehearsal
from .run_script import CODE
from .serve import Server, run_child, serve_next, wait_point

_SOURCE = b"import sys\nn = int(input())\nprint(sum(map(int, sys.stdin.readline().split())))\n"
_INPUT, _OUTPUT = b"3\n1 2 3\n", b"6\n"
_SERVED_RUNS, _LOOKS = 2, 2
_PATIENCE_MS = 10_000
_SETTLES_MS = 20
_OUT_OF_THE_WAY = 40
_SIGKILL = int(signal.SIGKILL)
_CPU_S, _MEMORY_BYTES = 10, 1 << 30


@dataclass(frozen=True)
class _Files:
    """What a run is given, in the order in which it travels, and where its output is read."""

    given: tuple[int, ...]
    output: int
    ended: select.poll
    """Tells when nobody can write any more."""

    @classmethod
    def fresh(cls, payload: bytes) -> _Files:
        """New ones."""
        read, write = map(_moved, os.pipe())
        os.set_blocking(read, False)
        ended = select.poll()
        ended.register(read, 0)
        return cls((_file(_INPUT), write, write, write, _file(payload)), read, ended)

    def rights(self) -> bytes:
        """What is given, as it travels beside a message."""
        return struct.pack(f"={len(self.given)}i", *self.given)

    def hand_over(self) -> None:
        """Close what was given."""
        for fd in dict.fromkeys(self.given):
            os.close(fd)

    def expect_output(self) -> None:
        """Raise StepRefused if the run has not written what it should have."""
        with contextlib.suppress(BlockingIOError):
            if os.read(self.output, 4096) == _OUTPUT:
                os.close(self.output)
                return
        raise kernel.StepRefused("a rehearsal went wrong")


def pin_what_runs_write(server: Server, memory: OwnMemory, rehearsals: Sequence[Rehearsal]) -> None:
    """Rehearse, and pin the pages; nothing where either is impossible. Nobody else must share our pages.

    Why a run fails here, the first real one will tell.
    """
    if wire.PAGES_FD not in memory.descriptors or wire.PINS_FD not in memory.descriptors:
        return
    data = [mapping for mapping in memory.mappings() if mapping.rights == DATA]
    payload = _payload()
    by_us, by_runs = ([Look(memory, data) for _ in range(_LOOKS)] for _ in range(2))
    with contextlib.suppress(kernel.StepRefused):
        for ours, theirs in zip(by_us, by_runs, strict=True):
            _look_at_ours(server, payload, ours)
            if not rehearsals:
                _look_at_a_runs(server, payload, theirs)
            for rehearsal in rehearsals:
                _look_at_a_conversation(server, rehearsal, theirs)
        pinned.pin(_always(by_us) | _always(by_runs))


def _always(looks: list[Look]) -> set[int]:
    """What was seen each time: the rest is where new objects happened to lie, or the work of a first time."""
    return set.intersection(*(set(look.unshared()) for look in looks))


def _look_at_ours(server: Server, payload: bytes, look: Look) -> None:
    """Look when some runs have been served, as the loop does it, while an idle process shares our pages.

    Raises StepRefused.
    """
    request = wire.REQUEST.pack(wire.RUN, 0, 0, False, _CPU_S, _MEMORY_BYTES, len(payload))
    runs = [_Files.fresh(payload) for _ in range(1 + _SERVED_RUNS)]
    rights = [[(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, run.rights())] for run in runs]
    # The idle process would be taken for something that a run has left behind, and be ended.
    server = replace(server, place=replace(server.place, jailed=False))
    poller = wait_point()
    with _asking() as asking:
        asking.sendmsg([request], rights[0])
        serve_next(server, poller)  # the first is like no other
        idle = kernel.fork()
        if idle == 0:
            _idle()
        for beside in rights[1:]:
            asking.sendmsg([request], beside)
            serve_next(server, poller)
        look.take()
        _end(idle)
    for run in runs:
        run.hand_over()
        run.expect_output()


def _look_at_a_runs(server: Server, payload: bytes, look: Look) -> None:
    """Look when a run has come to its end, and has not left. Raises StepRefused."""
    run = _Files.fresh(payload)
    for fd, number in zip(run.given, (0, 1, 2, wire.RESULT_FD, wire.LINK_FD), strict=True):
        os.dup2(fd, number)
    run.hand_over()
    limits = lockdown.run_limits(_CPU_S, _MEMORY_BYTES, False)
    pid = kernel.fork()
    if pid == 0:
        run_child(server, limits, server.harnesses[0], len(payload), None, _stay)
    os.closerange(0, wire.CONTROL_FD)
    os.closerange(wire.RESULT_FD, wire.LINK_FD + 1)
    run.ended.poll(_PATIENCE_MS)
    look.take()
    _end(pid)
    os.read(wire.STATUS_READ_FD, 4096)
    server.tmp.clear()
    run.expect_output()


def _look_at_a_conversation(server: Server, rehearsal: Rehearsal, look: Look) -> None:
    """Look when a run has said its last, and waits to hear more. Raises StepRefused."""
    number, payload, heard, last = rehearsal
    run = _Files.fresh(payload)
    ours, theirs = (_moved(end.detach()) for end in _socket.socketpair())
    given = (*run.given[:4], theirs, run.given[4])
    for fd, place in zip(given, (0, 1, 2, wire.RESULT_FD, wire.LINK_FD, wire.LINK_FD + 1), strict=True):
        os.dup2(fd, place)
    run.hand_over()
    os.close(theirs)
    limits = lockdown.run_limits(_CPU_S, _MEMORY_BYTES, execute=False)
    pid = kernel.fork()
    if pid == 0:
        run_child(server, limits, server.harnesses[number], len(payload), wire.LINK_FD)
    os.closerange(0, wire.CONTROL_FD)
    os.closerange(wire.RESULT_FD, wire.LINK_FD + 2)
    os.write(ours, heard)
    said = _said_up_to(ours, last)
    look.take()
    _end(pid)
    for fd in (ours, run.output):
        os.close(fd)
    os.read(wire.STATUS_READ_FD, 4096)
    server.tmp.clear()
    if not said:
        raise kernel.StepRefused("a rehearsal went wrong")


def _said_up_to(link: int, last: bytes) -> bool:
    """Read what a run says until it has said ``last``; False where it ends or falls silent before."""
    poller = select.poll()
    poller.register(link, select.POLLIN)
    said = b""
    while last not in said:
        if not poller.poll(_PATIENCE_MS):
            return False
        part = os.read(link, 1 << 16)
        if not part:
            return False
        said += part
    poller.poll(_SETTLES_MS)  # it goes back to where it waits
    return True


def _idle() -> NoReturn:
    """Do nothing, and end with the process that forked this one."""
    kernel.prctl_now(kernel.PR_SET_PDEATHSIG, _SIGKILL, 0)
    while True:
        kernel.pause()


def _end(pid: int) -> None:
    os.kill(pid, _SIGKILL)
    os.waitpid(pid, 0)


@contextlib.contextmanager
def _asking() -> Generator[_socket.socket]:
    """The other end of the control socket, which another one replaces meanwhile."""
    control = fcntl.fcntl(wire.CONTROL_FD, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    ours = _socket.socket(fileno=_moved(ours.detach()))
    os.dup2(theirs.fileno(), wire.CONTROL_FD, inheritable=False)
    theirs.close()
    try:
        yield ours
    finally:
        os.dup2(control, wire.CONTROL_FD, inheritable=False)
        os.close(control)
        ours.close()


def _payload() -> bytes:
    """The program with its code, as later cases get it: what compiling writes, not every run does."""
    path = str(sys.modules["__main__"].__file__)
    code = marshal.dumps(compile(_SOURCE, path, "exec", dont_inherit=True))
    return CODE + len(code).to_bytes(4, "little") + code + _SOURCE


def _stay(_: int) -> NoReturn:
    """Let go of the output, and wait to be killed."""
    os.closerange(0, wire.LINK_FD)
    while True:
        select.poll().poll()


def _file(data: bytes) -> int:
    fd = _moved(os.memfd_create("rehearsal", os.MFD_CLOEXEC))
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _moved(fd: int) -> int:
    """The same out of the way of the numbers that a run's descriptors have."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
    os.close(fd)
    return moved
