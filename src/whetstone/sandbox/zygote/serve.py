"""The fork-server's loop: one request, one child, one report. No data of a run passes through it.

Each page that a run writes is copied for it, and this is most of the cost of a run. So the code between the
fork and the program calls few functions, and those are implemented in C.
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
from .tmp_dir import MOUNT, PrivateDirectory, PrivateMount, ask_supervisor

CONFINED = b"."
_ANCILLARY_BYTES = _socket.CMSG_SPACE(4 * wire.MOST_FDS)
# The generator of the module ``random``. It is seeded without running Python code of the module.
_generator: Any = random.getrandbits.__self__
_reseed = _random.Random.seed
# The C function that ``signal.signal`` wraps.
_plain_signal: Any = importlib.import_module("_signal").signal
# As text, in a pid namespace. Written to ns_last_pid, it gives the next process the number after it.
OWN_PID = b"1"
_pread, _pwrite, _write, _close, _handle_signal = os.pread, os.pwrite, os.write, os.close, _plain_signal
_interrupt, _interrupted = int(signal.SIGINT), signal.default_int_handler
# The number of a run's pidfd. It is the lowest one, because the server has no standard streams then.
_PIDFD_FD = 0

_ANY_STATE = os.WEXITED | os.WNOHANG | os.WNOWAIT


@dataclass(frozen=True)
class ServerState:
    """The state of the loop. Its descriptors have the numbers in ``wire``."""

    control: _socket.socket
    place: lockdown.RunLocation
    tmp: PrivateDirectory | PrivateMount
    program_filter: ProgramFilter
    harnesses: Sequence[Harness]
    own_files: frozenset[str]
    own_pid: int
    numbers_runs: bool
    """Whether every run gets the same process id. Otherwise the id tells it how many runs there were."""
    visible: bool
    """Whether our user may read which memory the processes of a run share."""


def serve(server: ServerState) -> None:
    """Answer requests until the client closes its end, then kill all remaining processes."""
    preload.freeze_objects()
    poller = wait_point()
    while serve_next(server, poller):
        pass
    _end_processes(server)


def wait_point() -> select.poll:
    """Return a poller for the end of a run and for questions of the client."""
    poller = select.poll()
    poller.register(wire.CONTROL_FD, select.POLLIN)
    poller.register(_PIDFD_FD, select.POLLIN)
    return poller


def serve_next(server: ServerState, poller: select.poll) -> bool:
    """Answer one request. Returns False when the client has closed its end."""
    packet = server.control.recvmsg(wire.MAX_PACKET, _ANCILLARY_BYTES)[0]
    if packet[:1] != wire.RUN:
        if packet[:1] == wire.PLACE:
            server.control.send(wire.PLACED + _mount_workspace(packet[1:]))
        return bool(packet)  # a question about a run that has already ended
    _, number, harness, has_link, cpu_s, memory_bytes, size = wire.REQUEST.unpack(packet)
    limits = lockdown.run_limits(cpu_s, memory_bytes, server.place.profile.execute)
    # Without a new seed, all runs would draw the same random numbers. Seeding before the fork costs the run
    # no copied pages.
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
    _wait_for_run(server, poller, pid, number)
    return True


def _mount_workspace(request: bytes) -> bytes:
    """Let the supervisor mount the workspace of the next run. Returns the reason if it refuses."""
    try:
        ask_supervisor(MOUNT + request)
    except (OSError, kernel.StepRefused) as error:
        return f"{error}".encode() or b"?"
    return b""


def run_child(
    server: ServerState,
    limits: lockdown.ResourceLimits,
    main: Harness,
    size: int,
    link_fd: int | None,
    leave: Leave = os._exit,
) -> NoReturn:
    """Confine this process and run the harness in it. A refused step is written to the status pipe."""
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


def _wait_for_run(server: ServerState, poller: select.poll, pid: int, number: int) -> None:
    """Wait for the child and answer questions about it. Then clean up and send the report."""
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
                os.kill(pid, signal.SIGKILL)  # the client has exited, so its run must end too
    os.close(pidfd)
    if server.place.profile.processes and not server.place.jailed:
        with contextlib.suppress(OSError):  # it ended before it became the leader of a group
            # The kernel can reuse the number only after wait4, so this hits no other group.
            os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    if server.place.profile.workspaces and not server.place.jailed:
        with contextlib.suppress(ChildProcessError):  # the killed orphans of the group have ended
            while True:
                os.waitpid(-1, 0)
    cpu_s, peak_kib = _end_processes(server)
    cpu_s += usage.ru_utime + usage.ru_stime
    peak_kib = max(peak_kib, usage.ru_maxrss)
    server.tmp.clear()
    status_text = _status_text()
    confined = status_text[:1] == CONFINED
    report = wire.REPORT.pack(wire.ENDED, number, status, round(cpu_s * 1e6), peak_kib << 10, confined)
    with contextlib.suppress(BrokenPipeError):  # the client has exited; the loop notices it next
        server.control.send(report if confined else report + status_text)


def _answer(control: _socket.socket, pidfd: int) -> bool:
    """Answer one question. Returns False when the client has closed its end."""
    packet = control.recv(wire.MAX_PACKET)
    if packet[:1] == wire.PIDFD:
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _PIDFD_FD.to_bytes(4, sys.byteorder))
        control.sendmsg([packet], [rights])
    return bool(packet)


def _status_text() -> bytes:
    """Return what the run reported about its confinement, or nothing if it ended before."""
    try:
        return os.read(wire.STATUS_READ_FD, 4096)
    except BlockingIOError:
        return b""


def _end_processes(server: ServerState) -> tuple[float, int]:
    """Kill the remaining processes of a run. Returns their CPU seconds, and the largest peak memory in KiB.

    In a jail this is the first process of a pid namespace, so it is the parent of every orphan.
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
            # The kernel signals all processes of the namespace in one step, so no child can be missed.
            os.kill(-1, signal.SIGKILL)
            flags = 0
        cpu_s += usage.ru_utime + usage.ru_stime
        peak_kib = max(peak_kib, usage.ru_maxrss)
