"""The fork-servers of workspaces: each has the workspace of one command at a time in reach.

A supervisor with mounts mounts the workspace for a command, and unmounts it afterwards, which the kernel
refuses while a process uses it. On a tier without mounts, the workspace is moved into the only place where
the programs of the fork-server may write, and back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import stat
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path

from whetstone.sandbox.client import Sandbox
from whetstone.sandbox.job import RunResult, SandboxFault, SandboxJob, Tier
from whetstone.sandbox.run import SandboxRun
from whetstone.sandbox.supervision import supervise
from whetstone.sandbox.workspace import tree
from whetstone.sandbox.workspace.store import OwnFolder, Store
from whetstone.sandbox.workspace.tree import Usage
from whetstone.sandbox.zygote import wire
from whetstone.sandbox.zygote.profile import Profile
from whetstone.sandbox.zygote.tmp_dir import remove_directory
from whetstone.sandbox.zygote.workspaces import FOLDER, NOTHING, OVERLAY, WORKSPACE

_DISK_EVERY_TICKS = 10
# How a kernel answers that it never makes such a mount here.
_REFUSED = tuple(
    os.strerror(code)
    for code in (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENODEV, errno.ENOSYS, errno.EOPNOTSUPP)
)


@dataclass(frozen=True)
class Place:
    """Where the tree of a workspace lies, below the folder of its store."""

    store: Store
    tree: Path
    work: Path
    """A folder for overlayfs beside the tree; it does not exist between commands."""
    base: Path | None
    """The base under the layer; None for a copy."""


class _WorkspaceRun(SandboxRun):
    """A command, which is ended if its workspace exceeds its limits on disk."""

    top = -1
    """The open folder with the tree of the workspace."""
    directory = ""
    """The path of the workspace for the run."""
    most = Usage()
    _countdown = _DISK_EVERY_TICKS

    def _disk_is_full(self) -> bool:
        self._countdown -= 1
        if not self._countdown:
            self._countdown = _DISK_EVERY_TICKS
            used = tree.measure(self.top, self.most, ended=False)
            if (table := self.server.accounting.table) is not None:
                used += Usage(table.unlinked_bytes(self.directory))
            if used.exceeds(self.most):
                return True
        return super()._disk_is_full()


class NotStarted(SandboxFault):
    """The fork-server failed before the command started."""


class WayRefused(NotStarted):
    """The kernel does not mount workspaces in this way. A failure of another kind says nothing about it."""


class _Server(Sandbox):
    """A fork-server of the pool."""

    def run_in(self, place: Place, make_job: Callable[[str], SandboxJob], most: Usage) -> RunResult:
        """Run a job in a workspace. Raises SandboxFault; NotStarted if nothing has run."""
        with tree.folder(str(place.tree)) as top, contextlib.ExitStack() as reached:
            os.fchmod(top, os.fstat(top).st_mode & 0o777 | 0o700)  # a command may have closed it
            server = self._server
            try:
                directory = reached.enter_context(self._reached(place))
                run = self.start_as(_WorkspaceRun, make_job(directory))
            except WayRefused:
                raise
            except SandboxFault as fault:
                raise NotStarted(str(fault)) from None
            if run.server is not server:  # it had ended, and its successor does not reach the workspace
                run.abandon()
                raise NotStarted("the fork-server ended before the command")
            run.top, run.directory, run.most = top, directory, most
            return supervise([run])[0]

    @contextlib.contextmanager
    def _reached(self, place: Place) -> Generator[str]:
        """Put a workspace where the runs reach it. Yields its path for them."""
        if self.tier is Tier.RESTRICTED:
            private = os.stat(self._server.directory)
            if os.geteuid() == 0:
                with tree.folder(str(place.tree)) as top:
                    if os.fstat(top).st_uid != private.st_uid:
                        tree.give_all(top, private.st_uid)
            held = os.path.dirname(self._server.directory)
            with _moved(str(place.tree), os.path.join(held, "workspace")) as path:
                yield path
            return
        try:
            if place.base is None:
                self._mount(place.store, FOLDER, place.tree)
            else:
                place.store.make_folder(place.work, 0o700)
                self._mount(place.store, OVERLAY, place.base, place.tree, place.work)
            yield WORKSPACE
            self._mount(place.store, NOTHING)
        finally:
            remove_directory(str(place.work))

    def _mount(self, store: Store, kind: bytes, *paths: Path) -> None:
        """Mount a workspace: see ``zygote.workspaces``. Raises SandboxFault."""
        names = (os.fsencode(path.relative_to(store.folder)) for path in paths)
        self._server.send(wire.PLACE + b"\0".join((kind, *names)))
        message, _ = self._server.receive()
        if message != wire.PLACED:
            reason = message[1:].decode(errors="replace")
            fault = (
                WayRefused if reason.startswith("mount on ") and reason.endswith(_REFUSED) else SandboxFault
            )
            raise fault(f"a workspace could not be mounted: {reason}")


@contextlib.contextmanager
def _moved(source: str, target: str) -> Generator[str]:
    """Move a folder to where programs may write, and back. Nothing else can be created there."""
    held = os.path.dirname(target)
    os.chmod(held, 0o711)
    os.rename(source, target)
    os.chmod(held, 0o511)
    try:
        yield target
    finally:
        os.chmod(held, 0o711)
        os.rename(target, source)


def _require_way_to(folder: Path) -> None:
    """Raise PermissionError if another user than root cannot walk to a folder."""
    for part in folder.parents:
        if not part.stat().st_mode & stat.S_IXOTH:
            raise PermissionError(
                f"{part} is closed to other users, and programs run as one; choose a folder for workspaces "
                "that all users can walk to, for example below /var/tmp"
            )


class ServerPool:
    """Fork-servers of one tier. At most ``workers`` run a command at a time; others wait. Thread-safe."""

    def __init__(self, profile: Profile, tier: Tier, own: OwnFolder, workers: int) -> None:
        """Start one. Raises SandboxUnavailable if this machine does not offer the tier, and OSError."""
        seen = own.path if tier is Tier.RESTRICTED else own.store.folder
        if tier is Tier.RESTRICTED and os.geteuid() == 0:
            _require_way_to(seen)
        self._profile, self._tier = replace(profile, workspaces=str(seen)), tier
        self.closed = False
        self._slots: queue.LifoQueue[_Server | None] = queue.LifoQueue()
        for _ in range(workers - 1):
            self._slots.put(None)
        self._slots.put(self._new())

    def _new(self) -> _Server:
        return _Server({}, profile=self._profile, tier=self._tier)

    def run_in(self, place: Place, make_job: Callable[[str], SandboxJob], most: Usage) -> RunResult:
        """Run a job in a workspace; ``make_job`` gets the path of the workspace for the job.

        It is ended once the tree takes more than ``most``. Raises SandboxFault, after which the workspace
        cannot be used any more, and RuntimeError once closed.
        """
        if self.closed:
            raise RuntimeError("these workspaces are closed; make new ones")
        server = self._slots.get()
        try:
            server = server or self._new()
            try:
                return server.run_in(place, make_job, most)
            except NotStarted:  # it had ended while it was idle, and so may others
                server.close()
                server = self._new()
                return server.run_in(place, make_job, most)
        except BaseException:
            if server is not None:
                server.close()
            server = None
            raise
        finally:
            self._slots.put(server)
            if self.closed:
                self.close()

    def close(self) -> None:
        """End the fork-servers. Commands that run continue to their end."""
        self.closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                if (server := self._slots.get_nowait()) is not None:
                    server.close()
