"""The fork-server's loop: one request, one child, one report. No run's data passes through here.

What a run touches is copied for it page by page, and that is most of what a run costs. So the code between
the fork and the program calls few functions, and those that it calls are the C library's.
"""

from __future__ import annotations

import _random
import _socket
import contextlib
import importlib
import os
import random
import select
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from . import kernel, lockdown, preload, wire
from .program import Harness, Leave, run_harness
from .seccomp import ProgramFilter
from .tmp_dir import PrivateDirectory, PrivateMount

CONFINED = b"."
_ANCILLARY_BYTES = _socket.CMSG_SPACE(4 * wire.MOST_FDS)
# The generator behind the functions of ``random``, seeded without their Python code.
_generator: Any = random.getrandbits.__self__
_reseed = _random.Random.seed
# What ``signal.signal`` wraps.
_plain_signal: Any = importlib.import_module("_signal").signal
OWN_PID = b"1"
"""As text, where there is a pid namespace: the next process then gets the number after it."""
_pread, _pwrite, _write, _close, _handle_signal = os.pread, os.pwrite, os.write, os.close, _plain_signal
_interrupt, _interrupted = int(signal.SIGINT), signal.default_int_handler
_PIDFD_FD = 0
"""The number of a run's pidfd: the lowest, because the standard streams' are free while a run lasts."""

_ANY_STATE = os.WEXITED | os.WNOHANG | os.WNOWAIT


@dataclass(frozen=True)
class Server:
    """What the loop works with. Its descriptors have the numbers in ``wire``."""

    control: _socket.socket
    place: lockdown.Place
    tmp: PrivateDirectory | PrivateMount
    program_filter: ProgramFilter
    harnesses: Sequence[Harness]
    own_files: frozenset[str]
    own_pid: int
    numbers_runs: bool
    """Whether every run can be given the same process id, which would tell it how many there were before."""
    visible: bool
    """Whether our user is to see which memory a run's processes share."""


def serve(server: Server) -> None:
    """Answer requests until the driving process closes its end, then leave no process behind."""
    preload.settle()
    poller = wait_point()
    while serve_next(server, poller):
        pass
    _end_processes(server)


def wait_point() -> select.poll:
    """What tells that a run has ended, or that something is asked about it."""
    poller = select.poll()
    poller.register(wire.CONTROL_FD, select.POLLIN)
    poller.register(_PIDFD_FD, select.POLLIN)
    return poller


def serve_next(server: Server, poller: select.poll) -> bool:
    """Answer one request; False when there is none any more."""
    packet = server.control.recvmsg(wire.MAX_PACKET, _ANCILLARY_BYTES)[0]
    if packet[:1] != wire.RUN:
        return bool(packet)  # a question about a run that has ended meanwhile
    _, number, harness, has_link, cpu_s, memory_bytes, size = wire.REQUEST.unpack(packet)
    limits = lockdown.run_limits(cpu_s, memory_bytes, server.place.profile.execute)
    # A plain fork repeats the parent's numbers. Done here, it costs a run no copies of pages.
    _reseed(_generator)
    if server.numbers_runs:
        _pwrite(wire.LAST_PID_FD, OWN_PID, 0)
    pid = kernel.fork()
    if pid == 0:
        run_child(server, limits, server.harnesses[harness], size, wire.LINK_FD if has_link else None)
    os.closerange(0, wire.CONTROL_FD)
    os.closerange(wire.RESULT_FD, wire.LOG_FD)
    if pid < 0:
        raise kernel.StepRefused("fork")
    _attend(server, poller, pid, number)
    return True


def run_child(
    server: Server,
    limits: lockdown.ResourceLimits,
    main: Harness,
    size: int,
    link_fd: int | None,
    leave: Leave = os._exit,
) -> NoReturn:
    """Confine this process and run the harness in it; a refused step goes to the status pipe."""
    try:
        first_foreign_fd = wire.LINK_FD if link_fd is None else wire.LINK_FD + 1
        payload = _pread(first_foreign_fd, size, 0)
        _handle_signal(_interrupt, _interrupted)
        lockdown.confine_run(
            limits, server.program_filter, server.own_pid, first_foreign_fd, visible=server.visible
        )
        _write(wire.STATUS_WRITE_FD, CONFINED)
        _close(wire.STATUS_WRITE_FD)
    except BaseException as error:
        _write(wire.STATUS_WRITE_FD, f"{error}"[:2000].encode() or b"?")
        os._exit(1)
    run_harness(main, server.own_files, payload, wire.RESULT_FD, link_fd, leave)


def _attend(server: Server, poller: select.poll, pid: int, number: int) -> None:
    """Wait for the child, answering questions about it, then clean up and report."""
    pidfd = os.pidfd_open(pid)
    if pidfd != _PIDFD_FD:
        raise kernel.StepRefused(f"a run's pidfd is {pidfd}: a descriptor was left open")
    ended = False
    while not ended:
        for fd, _ in poller.poll():
            if fd == pidfd:
                ended = True
            elif not _answer(server.control, pidfd):
                poller.unregister(wire.CONTROL_FD)
                os.kill(pid, signal.SIGKILL)  # the driving process is gone: nothing of it may stay
    os.close(pidfd)
    if server.place.profile.processes and not server.place.jailed:
        with contextlib.suppress(OSError):  # it leads no group
            os.killpg(pid, signal.SIGKILL)  # before it is reaped: its number is still its own
    _, status, usage = os.wait4(pid, 0)
    cpu_s, peak_kib = _end_processes(server)
    cpu_s += usage.ru_utime + usage.ru_stime
    peak_kib = max(peak_kib, usage.ru_maxrss)
    server.tmp.clear()
    said = _status_text()
    confined = said[:1] == CONFINED
    report = wire.REPORT.pack(wire.ENDED, number, status, round(cpu_s * 1e6), peak_kib << 10, confined)
    with contextlib.suppress(BrokenPipeError):  # nobody left to report to; the loop sees it next
        server.control.send(report if confined else report + said)


def _answer(control: _socket.socket, pidfd: int) -> bool:
    """Answer one question; False when the driving process has closed its end."""
    packet = control.recv(wire.MAX_PACKET)
    if packet[:1] == wire.PIDFD:
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _PIDFD_FD.to_bytes(4, sys.byteorder))
        control.sendmsg([packet], [rights])
    return bool(packet)


def _status_text() -> bytes:
    """What the run said of its confinement; nothing if it did not come to that."""
    try:
        return os.read(wire.STATUS_READ_FD, 4096)
    except BlockingIOError:
        return b""


def _end_processes(server: Server) -> tuple[float, int]:
    """End what a run left behind; the CPU seconds of it all, and the peak memory of the largest in KiB.

    A jail has a pid namespace of its own: we are its first process, and every orphan comes to us.
    """
    cpu_s, peak_kib = 0.0, 0
    if not server.place.jailed or kernel.wait_id(os.P_ALL, 0, None, _ANY_STATE) < 0:
        return cpu_s, peak_kib
    flags = os.WNOHANG
    while True:
        try:
            left, _, usage = os.wait4(-1, flags)
        except ChildProcessError:
            return cpu_s, peak_kib
        if not left:
            os.kill(-1, signal.SIGKILL)  # none escapes: who is killed can start no other
            flags = 0
        cpu_s += usage.ru_utime + usage.ru_stime
        peak_kib = max(peak_kib, usage.ru_maxrss)
