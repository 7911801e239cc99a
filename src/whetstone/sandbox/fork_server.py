"""One fork-server process from outside: start it, exchange messages, end it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from whetstone.sandbox.accounting import Accounting
from whetstone.sandbox.cgroup import Freezer, make_freezer, make_group
from whetstone.sandbox.job import SandboxFault, Tier
from whetstone.sandbox.process_table import ProcessTable
from whetstone.sandbox.streams import PayloadFile
from whetstone.sandbox.zygote import tmp_dir, wire
from whetstone.sandbox.zygote.profile import OWN_INTERPRETER, PYTHON, Profile

_BOOT = Path(__file__).parent / "zygote" / "boot.py"
_START_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 5.0
_RIGHTS = socket.SOL_SOCKET, socket.SCM_RIGHTS
_ROOM_FOR_ONE = socket.CMSG_LEN(4)


class StartRefused(Exception):
    """A fork-server could not isolate itself as requested; the message names the step."""


class ForkServer:
    """A running fork-server of one tier. It is a fresh interpreter, not a fork of this process."""

    def __init__(self, tier: Tier, harnesses: Mapping[str, Path], profile: Profile = PYTHON) -> None:
        """Start it and wait until it serves. Raises StartRefused."""
        self.tier = tier
        self.profile = profile
        self.alive = True
        self.loaded_bytes = 0
        """Resident memory of what was loaded ahead of all runs: no run's own. Known when it was proved."""
        self.payload = PayloadFile()
        self._poller: select.poll | None = None
        self._polled_stop_fd: int | None = None
        self._names = {name: index for index, name in enumerate(harnesses)}
        self.directory = ""
        if tier is Tier.RESTRICTED:
            # For the files of runs, in memory if possible, like the /tmp of a jail.
            place = profile.workspaces or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
            made = tempfile.mkdtemp(prefix=f"whetstone-{os.getpid()}-", dir=place)
            self.directory = os.path.realpath(made)
            if profile.workspaces:  # its parent has room for a workspace
                os.mkdir(os.path.join(self.directory, "tmp"))
                os.chmod(self.directory, 0o511)  # no program of any user creates anything there
                self.directory = os.path.join(self.directory, "tmp")
        # Without namespaces, programs have one process, and those of compilers are identified by their group.
        self._group = make_group() if tier is not Tier.RESTRICTED else None
        self._freezer: Freezer | None = None
        self.accounting = Accounting(None, None)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {
            "tier": tier.label,
            "directory": self.directory,
            "control": theirs.fileno(),
            "profile": asdict(profile),
            "group_entrances": self._group.entrances if self._group else [],
            "group_counts": sorted(self._group.controllers) if self._group else [],
            "harnesses": [(name, str(path.resolve())) for name, path in harnesses.items()],
        }
        with theirs:
            self._process = _spawn(json.dumps(request), theirs.fileno(), profile)
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self) -> None:
        self.control.settimeout(_START_TIMEOUT_S)
        try:
            message, descriptors, _, _ = socket.recv_fds(self.control, wire.MAX_PACKET, 1)
        except OSError as error:
            raise StartRefused(f"the fork-server did not start: {error}") from None
        table = ProcessTable(descriptors[0]) if descriptors else None
        if self.tier is Tier.RESTRICTED and self.profile.processes:
            table = ProcessTable(os.open("/proc", os.O_RDONLY | os.O_CLOEXEC), shared=True)
        if message not in (wire.READY, wire.READY_IN_GROUP):
            reason = message[1:].decode(errors="replace") or f"the fork-server died: {self.error_output()}"
            raise StartRefused(reason)
        group = self._group if message == wire.READY_IN_GROUP else None
        try:
            self.accounting = Accounting(group, table)
        except SandboxFault as fault:
            raise StartRefused(str(fault)) from None

    def harness_number(self, name: str) -> int:
        """Return the number of a harness in requests. Raises KeyError, which lists the known harnesses."""
        if name not in self._names:
            raise KeyError(f"no harness {name!r}; this sandbox was started with {sorted(self._names)}")
        return self._names[name]

    def freezer(self) -> Freezer | None:
        """Return a group that freezes its runs. It is made when first needed. None if there is none."""
        self._freezer = self._freezer or make_freezer(self._group)
        return self._freezer

    def send(self, message: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send one message. Raises SandboxFault if the fork-server has ended."""
        try:
            if descriptors:
                self.control.sendmsg([message], [(*_RIGHTS, array("i", descriptors))])
            else:
                self.control.send(message)
        except OSError as error:
            raise SandboxFault(f"the fork-server is gone ({error}): {self.error_output()}") from None

    def receive(self) -> tuple[bytes, list[int]]:
        """Return the next message with its descriptors. Raises SandboxFault if the fork-server died."""
        try:
            message, ancillary, _, _ = self.control.recvmsg(wire.MAX_PACKET, _ROOM_FOR_ONE)
        except OSError as error:
            raise SandboxFault(f"the fork-server does not answer: {error}") from None
        if not message:
            raise SandboxFault(f"the fork-server died: {self.error_output()}")
        return message, [array("i", data)[0] for *kind, data in ancillary if tuple(kind) == _RIGHTS]

    def message_within(self, wait_s: float, stop_fd: int | None) -> bool:
        """Return whether a message arrives within this time. Returns early if ``stop_fd`` becomes
        readable."""
        if self._poller is None or stop_fd != self._polled_stop_fd:
            self._poller, self._polled_stop_fd = select.poll(), stop_fd
            for fd in (self.control.fileno(), stop_fd):
                if fd is not None:
                    self._poller.register(fd, select.POLLIN)
        ready = self._poller.poll(max(wait_s, 0.0) * 1000.0)
        return any(fd == self.control.fileno() for fd, _ in ready)

    def error_output(self) -> str:
        """Return the end of its standard error, for error messages."""
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            os.set_blocking(self._process.stdout.fileno(), False)
            text = os.read(self._process.stdout.fileno(), 65536).decode(errors="replace").strip()
            if text:
                return text[-500:]
        return "it left no message"

    def close(self) -> None:
        """End it in good order; kill it if it does not end in time."""
        self.control.close()  # the end of its input makes it exit, and end its child
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill it and its child now. The kernel ends a pid namespace with its first process."""
        self.alive = False
        self.payload.close()
        self.control.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.accounting.close()
        for group in (self._freezer, self._group):
            if group is not None:
                group.remove()
        if self.directory and os.path.isdir(self.directory):
            with contextlib.suppress(OSError):
                tmp_dir.empty_directory(self.directory)
            shutil.rmtree(self.directory, ignore_errors=True)


def _spawn(request: str, control_fd: int, profile: Profile) -> subprocess.Popen[bytes]:
    """Start the interpreter outside any virtual environment, with only the loader's environment variables."""
    # With late binding, every run would resolve library functions and write these tables again.
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LD_BIND_NOW": "1"}
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    if profile.hash_seed is not None:
        environment["PYTHONHASHSEED"] = str(profile.hash_seed)
    # Standard output and error are pipes from the start. Python's stream objects, which every child inherits,
    # remember that they cannot seek.
    return subprocess.Popen(
        # Not -I, which would ignore the hash seed. No other variable that the interpreter reads is set.
        [profile.interpreter or OWN_INTERPRETER, "-s", "-P", "-S", "-X", "utf8", str(_BOOT), request],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd="/",
        pass_fds=[control_fd],
        start_new_session=True,  # a Ctrl-C for this process must not end it
    )
