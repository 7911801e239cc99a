"""Finds the pages that every run writes, before the first run, by running a small program.

A harness may define other runs (``REHEARSALS``): their payload, and the messages on their link.

The pages of this process are shared with every fork until one of the two writes to them. So two readings show
the written pages. The first one is made at the end of a run, before it exits. The second one is made after
several runs have been served in the usual way, while an idle process shares the pages. Pages that are written
each time are pinned.
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

from . import kernel, lockdown, own_memory, wire
from .own_memory import DATA, OwnMemory, PageReading
from .program import Rehearsal
from .run_script import CODE
from .serve import ServerState, run_child, serve_next, wait_point

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
    """The descriptors of a run, in the order in which they are sent, and the one to read its output from."""

    sent: tuple[int, ...]
    output: int
    ended: select.poll
    """Becomes ready when no process can write the output any more."""

    @classmethod
    def fresh(cls, payload: bytes) -> _Files:
        """Create new descriptors for a run with this payload."""
        read, write = map(_move_fd, os.pipe())
        os.set_blocking(read, False)
        ended = select.poll()
        ended.register(read, 0)
        return cls((_file(_INPUT), write, write, write, _file(payload)), read, ended)

    def rights(self) -> bytes:
        """Return the descriptors as ancillary data of a message."""
        return struct.pack(f"={len(self.sent)}i", *self.sent)

    def hand_over(self) -> None:
        """Close our copies of the run's descriptors."""
        for fd in dict.fromkeys(self.sent):
            os.close(fd)

    def expect_output(self) -> None:
        """Raise StepRefused if the run has not written the expected output."""
        with contextlib.suppress(BlockingIOError):
            if os.read(self.output, 4096) == _OUTPUT:
                os.close(self.output)
                return
        raise kernel.StepRefused("a rehearsal went wrong")


def pin_what_runs_write(server: ServerState, memory: OwnMemory, rehearsals: Sequence[Rehearsal]) -> None:
    """Rehearse, and pin the pages. Does nothing if either is impossible.

    No other process may share our pages during the call. A failed rehearsal is ignored: if its cause
    persists, the first real run fails with a report.
    """
    if wire.PAGES_FD not in memory.descriptors or wire.PINS_FD not in memory.descriptors:
        return
    data = [mapping for mapping in memory.mappings() if mapping.rights == DATA]
    payload = _payload()
    by_us, by_runs = ([PageReading(memory, data) for _ in range(_LOOKS)] for _ in range(2))
    with contextlib.suppress(kernel.StepRefused):
        for own_end, run_end in zip(by_us, by_runs, strict=True):
            _read_server_pages(server, payload, own_end)
            if not rehearsals:
                _read_run_pages(server, payload, run_end)
            for rehearsal in rehearsals:
                _read_conversation_pages(server, rehearsal, run_end)
        own_memory.pin_pages(_pages_in_all(by_us) | _pages_in_all(by_runs))


def _pages_in_all(readings: list[PageReading]) -> set[int]:
    """Return the pages that every reading contains. The others have objects that were new by chance, or
    first-time work."""
    return set.intersection(*(set(reading.unshared()) for reading in readings))


def _read_server_pages(server: ServerState, payload: bytes, reading: PageReading) -> None:
    """Read the pages that serving runs writes, while an idle process shares our pages. Raises StepRefused."""
    request = wire.REQUEST.pack(wire.RUN, 0, 0, False, _CPU_S, _MEMORY_BYTES, len(payload))
    runs = [_Files.fresh(payload) for _ in range(1 + _SERVED_RUNS)]
    rights = [[(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, run.rights())] for run in runs]
    # In a jail, the loop would kill the idle process as a remainder of a run.
    server = replace(server, place=replace(server.place, jailed=False))
    poller = wait_point()
    with _temporary_client() as client:
        client.sendmsg([request], rights[0])
        serve_next(server, poller)  # the first run also does one-time work, so it does not count
        idle = kernel.fork()
        if idle == 0:
            _idle()
        for descriptors in rights[1:]:
            client.sendmsg([request], descriptors)
            serve_next(server, poller)
        reading.take()
        _end(idle)
    for run in runs:
        run.hand_over()
        run.expect_output()


def _read_run_pages(server: ServerState, payload: bytes, reading: PageReading) -> None:
    """Read the pages when a run is at its end but has not exited. Raises StepRefused."""
    run = _Files.fresh(payload)
    for fd, number in zip(run.sent, (0, 1, 2, wire.RESULT_FD, wire.LINK_FD), strict=True):
        os.dup2(fd, number)
    run.hand_over()
    limits = lockdown.run_limits(_CPU_S, _MEMORY_BYTES, False)
    pid = kernel.fork()
    if pid == 0:
        run_child(server, limits, server.harnesses[0], len(payload), None, _wait_for_kill)
    os.closerange(0, wire.CONTROL_FD)
    os.closerange(wire.RESULT_FD, wire.LINK_FD + 1)
    run.ended.poll(_PATIENCE_MS)
    reading.take()
    _end(pid)
    os.read(wire.STATUS_READ_FD, 4096)
    server.tmp.clear()
    run.expect_output()


def _read_conversation_pages(server: ServerState, rehearsal: Rehearsal, reading: PageReading) -> None:
    """Read the pages when a run has sent its last message and waits for more. Raises StepRefused."""
    number, payload, incoming, last = rehearsal
    run = _Files.fresh(payload)
    own_end, run_end = (_move_fd(end.detach()) for end in _socket.socketpair())
    descriptors = (*run.sent[:4], run_end, run.sent[4])
    for fd, place in zip(descriptors, (0, 1, 2, wire.RESULT_FD, wire.LINK_FD, wire.LINK_FD + 1), strict=True):
        os.dup2(fd, place)
    run.hand_over()
    os.close(run_end)
    limits = lockdown.run_limits(_CPU_S, _MEMORY_BYTES, execute=False)
    pid = kernel.fork()
    if pid == 0:
        run_child(server, limits, server.harnesses[number], len(payload), wire.LINK_FD)
    os.closerange(0, wire.CONTROL_FD)
    os.closerange(wire.RESULT_FD, wire.LINK_FD + 2)
    os.write(own_end, incoming)
    received = _read_until(own_end, last)
    reading.take()
    _end(pid)
    for fd in (own_end, run.output):
        os.close(fd)
    os.read(wire.STATUS_READ_FD, 4096)
    server.tmp.clear()
    if not received:
        raise kernel.StepRefused("a rehearsal went wrong")


def _read_until(link: int, last: bytes) -> bool:
    """Read the messages of a run up to ``last``. Returns False if it ends or stops sending before."""
    poller = select.poll()
    poller.register(link, select.POLLIN)
    received = b""
    while last not in received:
        if not poller.poll(_PATIENCE_MS):
            return False
        part = os.read(link, 1 << 16)
        if not part:
            return False
        received += part
    poller.poll(_SETTLES_MS)  # gives it time to reach its next read
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
def _temporary_client() -> Generator[_socket.socket]:
    """Yield the client's end of a temporary control socket, which replaces the real one in the block."""
    control = fcntl.fcntl(wire.CONTROL_FD, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
    own_end, run_end = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    own_end = _socket.socket(fileno=_move_fd(own_end.detach()))
    os.dup2(run_end.fileno(), wire.CONTROL_FD, inheritable=False)
    run_end.close()
    try:
        yield own_end
    finally:
        os.dup2(control, wire.CONTROL_FD, inheritable=False)
        os.close(control)
        own_end.close()


def _payload() -> bytes:
    """Return the program with its compiled code, because later runs do not compile either."""
    path = str(sys.modules["__main__"].__file__)
    code = marshal.dumps(compile(_SOURCE, path, "exec", dont_inherit=True))
    return CODE + len(code).to_bytes(4, "little") + code + _SOURCE


def _wait_for_kill(_: int) -> NoReturn:
    """Close the output, and wait for the kill."""
    os.closerange(0, wire.LINK_FD)
    while True:
        select.poll().poll()


def _file(data: bytes) -> int:
    fd = _move_fd(os.memfd_create("rehearsal", os.MFD_CLOEXEC))
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _move_fd(fd: int) -> int:
    """Move a descriptor to a number that no descriptor of a run has."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
    os.close(fd)
    return moved
