"""Starts a fork-server in a new interpreter: harnesses, confinement, preload, filter, loop."""

from __future__ import annotations

import _socket
import fcntl
import importlib
import importlib.util
import os
import signal
import sys
from typing import Any

from . import kernel, launcher, lockdown, own_memory, preload, program, rehearsal, serve, wire
from .own_memory import OwnMemory
from .profile import Profile
from .program import Harness
from .seccomp import ProgramFilter
from .tmp_dir import PrivateDirectory, PrivateMount


def start(control: _socket.socket, request: dict[str, Any], harnesses: list[tuple[str, str]]) -> None:
    """Serve as a fork-server on ``control``. The first message is READY, or REFUSED with the failed step."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        server = _prepare(
            control,
            launcher.Request(profile=Profile(**request.pop("profile")), **request),
            harnesses,
        )
    except Exception as error:
        control.send(wire.REFUSED + f"{error or type(error).__name__}"[:2000].encode())
        return
    _announce(server)
    try:
        serve.serve(server)
    except Exception:
        os.dup2(wire.LOG_FD, 2)  # the client reads the traceback from there
        raise


def _announce(server: serve.ServerState) -> None:
    """Report that this process serves, and hand over the process table. No run may have a copy."""
    place = server.place
    rights: list[tuple[int, int, bytes]] = []
    if place.process_table is not None and place.whole_tree:
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, wire.TABLE_FD.to_bytes(4, sys.byteorder))]
    server.control.sendmsg([wire.READY_IN_GROUP if place.group_counts else wire.READY], rights)
    os.closerange(wire.TABLE_FD, wire.TABLE_FD + 1)


def _prepare(
    control: _socket.socket, request: launcher.Request, harnesses: list[tuple[str, str]]
) -> serve.ServerState:
    # Harnesses are loaded before ``launcher.enter`` hides the files of the host.
    mains: list[Harness] = []
    rehearsals: list[program.Rehearsal] = []
    for number, (name, path) in enumerate(harnesses):
        module = _load_harness(name, path)
        mains.append(module.main)
        rehearsals += [(number, *conversation) for conversation in getattr(module, "REHEARSALS", ())]
    own_files = frozenset((program.__file__, serve.__file__, *(path for _, path in harnesses)))
    place, requests, memory = launcher.enter(request)
    preload.load(place.profile)
    own_memory.merge_mappings(memory)
    if not place.profile.execute:
        own_memory.use_huge_pages(memory)
    for name in [name for name in sys.modules if name.startswith(__package__ or "?")]:
        del sys.modules[name]  # programs must not find them
    program.prepare_main(place.directory)
    lockdown.confine_template(place)
    control = _place_descriptors(control, requests, place.process_table, memory)
    tmp = PrivateDirectory(place.directory)
    if place.jailed:
        tmp = PrivateMount(place.directory, program_file=not place.profile.execute)
    # The kernel drops signals from within a pid namespace to its first process, unless a handler is set.
    # Python sets one for SIGINT.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    program_filter = ProgramFilter(
        jailed=place.jailed,
        processes=place.whole_tree or place.profile.processes,
        # Without a control group, the CPU time of a child is added only to the process that waits for it.
        keep_children="cpu" not in place.group_counts,
    )
    numbered = _numbers_runs(memory)
    own_pid, seen = os.getpid(), place.visible
    server = serve.ServerState(control, place, tmp, program_filter, mains, own_files, own_pid, numbered, seen)
    os.closerange(0, wire.CONTROL_FD)
    if not place.profile.execute:
        preload.freeze_objects()
        rehearsal.pin_what_runs_write(server, memory, rehearsals)
    memory.close()
    lockdown.filter_template(place)
    return server


def _numbers_runs(memory: OwnMemory) -> bool:
    """Return whether this process may set the id of the next process."""
    if wire.LAST_PID_FD not in memory.descriptors:
        return False
    try:
        os.pwrite(wire.LAST_PID_FD, serve.OWN_PID, 0)
    except OSError:
        return False
    return True


def _load_harness(name: str, path: str) -> Any:
    if os.path.dirname(path) == os.path.dirname(os.path.abspath(__file__)):
        return importlib.import_module(f".{os.path.basename(path)[:-3]}", __package__)
    module_name = f"_whetstone_harness_{name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise kernel.StepRefused(f"harness {name}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise kernel.StepRefused(f"harness {name} ({path}): {type(error).__name__}: {error}") from None
    return module


def _place_descriptors(
    control: _socket.socket, requests: _socket.socket, table: int | None, memory: OwnMemory
) -> _socket.socket:
    """Give our descriptors the numbers in ``wire``, and close all others except the standard streams."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    ours = {
        wire.CONTROL_FD: control.detach(),
        wire.SUPERVISOR_FD: requests.detach(),
        wire.STATUS_READ_FD: read,
        wire.STATUS_WRITE_FD: write,
        wire.LOG_FD: 2,
        **memory.descriptors,
    }
    memory.were_moved()
    if table is not None:
        ours[wire.TABLE_FD] = table
    # In two steps, because the new number of one may be the present number of another.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in ours.values()]
    os.closerange(3, 64)
    for fd, number in zip(high, ours, strict=True):
        os.dup2(fd, number, inheritable=False)
    os.closerange(64, 1 << 30)
    return _socket.socket(fileno=wire.CONTROL_FD)
