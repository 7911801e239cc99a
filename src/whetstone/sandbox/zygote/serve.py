"""The fork-server's loop: one request, one child, one report. No run's data passes through here."""

from __future__ import annotations

import _random
import contextlib
import os
import random
import select
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from . import kernel, lockdown, wire
from .program import Harness, run_harness
from .seccomp import ProgramFilter
from .tmp_dir import PrivateDirectory, PrivateMount

_MAX_DESCRIPTORS = wire.LINK_FD - wire.PAYLOAD_FD + 1
CONFINED = b"."
# The generator behind the functions of ``random``, seeded without their Python code.
_generator: Any = random.getrandbits.__self__
_reseed = _random.Random.seed


@dataclass(frozen=True)
class Server:
    """What the loop works with. Its descriptors lie at ``wire.FIRST_PRIVATE_FD`` and above."""

    control: socket.socket
    status_read: int
    status_write: int
    place: lockdown.Place
    tmp: PrivateDirectory | PrivateMount
    program_filter: ProgramFilter
    harnesses: Sequence[Harness]
    own_files: frozenset[str]
    own_pid: int


def serve(server: Server) -> None:
    """Answer requests until the driving process closes its end, then leave no process behind."""
    poller = select.poll()
    poller.register(server.control, select.POLLIN)
    while True:
        packet, descriptors, _, _ = socket.recv_fds(server.control, wire.MAX_PACKET, _MAX_DESCRIPTORS)
        if not packet:
            break
        if packet[:1] != wire.RUN:
            continue  # a question about a run that has ended meanwhile
        _, number, harness, has_link, cpu_s, memory_bytes = wire.REQUEST.unpack(packet)
        limits = lockdown.run_limits(server.place.profile, cpu_s, memory_bytes)
        # A plain fork repeats the parent's numbers; here no run pays for it with copies of pages.
        _reseed(_generator)
        pid = kernel.fork()
        if pid == 0:
            _child(server, limits, server.harnesses[harness], has_link=bool(has_link))
        os.closerange(wire.PAYLOAD_FD, wire.PAYLOAD_FD + len(descriptors))
        _attend(server, poller, pid, number)
    _end_processes(server)


def _child(server: Server, limits: lockdown.ResourceLimits, main: Harness, *, has_link: bool) -> NoReturn:
    """Confine this process and run the harness in it; a refused step goes to the status pipe."""
    status = server.status_write
    try:
        payload = os.pread(wire.PAYLOAD_FD, os.fstat(wire.PAYLOAD_FD).st_size, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        lockdown.confine_run(limits, server.program_filter, server.own_pid, status, has_link=has_link)
        os.write(status, CONFINED)
        os.close(status)
    except BaseException as error:
        os.write(status, f"{error}"[:2000].encode() or b"?")
        os._exit(1)
    run_harness(main, server.own_files, payload, wire.RESULT_FD, wire.LINK_FD if has_link else None)


def _attend(server: Server, poller: select.poll, pid: int, number: int) -> None:
    """Wait for the child, answering questions about it, then clean up and report."""
    pidfd = os.pidfd_open(pid)
    poller.register(pidfd, select.POLLIN)
    ended = False
    while not ended:
        for fd, _ in poller.poll():
            if fd == pidfd:
                ended = True
            elif not _answer(server.control, pidfd):
                poller.unregister(server.control)
                os.kill(pid, signal.SIGKILL)  # the driving process is gone: nothing of it may stay
    poller.unregister(pidfd)
    os.close(pidfd)
    _, status, usage = os.wait4(pid, 0)
    _end_processes(server)
    server.tmp.clear()
    said = _status_text(server.status_read)
    confined = said[:1] == CONFINED
    cpu_us = round((usage.ru_utime + usage.ru_stime) * 1e6)
    report = wire.REPORT.pack(wire.ENDED, number, status, cpu_us, usage.ru_maxrss * 1024, confined)
    with contextlib.suppress(BrokenPipeError):  # nobody left to report to; the loop sees it next
        server.control.send(report if confined else report + said)


def _answer(control: socket.socket, pidfd: int) -> bool:
    """Answer one question; False when the driving process has closed its end."""
    packet = control.recv(wire.MAX_PACKET)
    if packet[:1] == wire.PIDFD:
        socket.send_fds(control, [packet], [pidfd])
    return bool(packet)


def _status_text(status_read: int) -> bytes:
    try:
        return os.read(status_read, 4096)
    except BlockingIOError:
        return b""


def _end_processes(server: Server) -> None:
    """Nothing of a run stays: a jail has a pid namespace of its own, in which we are the first."""
    if not server.place.jailed:
        return
    while True:
        try:
            left, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not left:  # seccomp forbids processes: should one exist, it ends here
            os.kill(-1, signal.SIGKILL)
