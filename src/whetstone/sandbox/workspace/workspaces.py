"""Opens workspaces and runs commands in them.

    base = WorkspaceBase.from_folder(cache, folder)
    with Workspaces(cache) as workspaces, workspaces.open(base) as workspace:
        result = workspace.run(["python3", "-m", "pytest", "-q"], limits=limits)
        diff = workspace.diff()

An open workspace is a folder of this machine and has no process. Its commands take a fork-server from a pool.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from whetstone.core.closing import Closing
from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox.execute import execute_job, execution_error
from whetstone.sandbox.job import EndReason, RunLimits, RunResult, SandboxFault, SandboxJob, Tier
from whetstone.sandbox.tiers import unavailable
from whetstone.sandbox.workspace import tree
from whetstone.sandbox.workspace.base import WorkspaceBase, store_base
from whetstone.sandbox.workspace.changes import WorkspaceDiff, WorkspaceLimits
from whetstone.sandbox.workspace.differences import find_differences
from whetstone.sandbox.workspace.servers import Place, ServerPool, WayRefused
from whetstone.sandbox.workspace.store import OwnFolder, Store
from whetstone.sandbox.workspace.tree import UNLIMITED, Usage, WorkspaceError
from whetstone.sandbox.zygote.profile import Profile
from whetstone.sandbox.zygote.tmp_dir import remove_directory

WORKSPACE_PROFILE = Profile("workspace", execute=True, processes=True, proc=True)
"""What commands may use by default: the system's programs, and several processes."""
OVERLAY, COPY = "overlay", "copy"
_TREE = "tree"
_NOT_FOUND = 127
_PROOF = ["sh", "-c", "set -e; test -e old/a; mv old/a b; rmdir old; mkdir old; echo new > old/c"]
_PROVED = [("b", b""), ("old/a", b""), ("old/c", b"new\n")]
# A file that is read or written: another kind, such as a pipe, could wait forever.
_CHECK = 'if [ -e "./$1" ] && [ ! -f "./$1" ]; then echo "it is no file" >&2; exit 1; fi; '
_READ = '[ -e "./$1" ] || { echo "there is no such file" >&2; exit 1; }; exec head -c "$2" "./$1"'
_WRITE = 'mkdir -p "$(dirname "./$1")" && exec cat > "./$1"'
_FILE_LIMITS = RunLimits(cpu_s=10.0, memory_bytes=1 << 30, output_bytes=1 << 16)
_NO_ROOM = "the workspace is beyond its limits; remove files, or raise disk_bytes or disk_entries"


class Workspaces(Closing):
    """Opens workspaces, and owns the fork-servers for their commands. Usable from several threads."""

    def __init__(
        self,
        root: Path,
        *,
        tier: Tier | None = None,
        minimum_tier: Tier = Tier.RESTRICTED,
        profile: Profile = WORKSPACE_PROFILE,
        way: str | None = None,
        limits: WorkspaceLimits | None = None,
        workers: int = 0,
    ) -> None:
        """Start a fork-server and prove that a workspace works.

        ``root`` is the folder of this machine with bases and layers. ``tier`` requires exactly that isolation
        tier; None takes the strongest that works. ``way`` requires ``overlay`` or ``copy``; None takes the
        first that the kernel offers. ``limits`` bound each workspace. At most ``workers`` commands run at a
        time; 0 means one for each core. Raises SandboxUnavailable if this machine does not offer this, or if
        two trials fail, ValueError for an unknown way, and OSError.
        """
        if way not in (None, OVERLAY, COPY):
            raise ValueError(f"{way!r} is no way to keep workspaces; choose `{OVERLAY}` or `{COPY}`")
        self.root, self.limits = Path(root), limits or WorkspaceLimits()
        self._profile, self._workers = profile, workers or len(os.sched_getaffinity(0))
        self.own = OwnFolder(Store(self.root))
        try:
            self._take_first_that_works(tier, minimum_tier, way)
        except BaseException:
            self.own.close()
            raise

    tier: Tier
    """The isolation tier of all commands."""
    way: str
    """How trees are kept: ``overlay``, as a layer over the base, or ``copy``, as a copy of it."""

    def _take_first_that_works(self, tier: Tier | None, minimum: Tier, way: str | None) -> None:
        tiers = [each for each in sorted(Tier, reverse=True) if each >= minimum and tier in (None, each)]
        refusals: dict[Tier, str] = {}
        for self.tier in tiers:
            try:
                self.pool = ServerPool(self._profile, self.tier, self.own, self._workers)
            except (SandboxUnavailable, OSError) as error:
                refusals[self.tier] = f"{error}"
                continue
            for self.way in (OVERLAY, COPY):
                if way not in (None, self.way) or (self.tier is Tier.RESTRICTED and self.way == OVERLAY):
                    continue
                try:
                    return self._prove()
                except WayRefused as refusal:
                    refusals[self.tier] = f"{refusals.get(self.tier, '')} way {self.way}: {refusal}".strip()
                except BaseException:
                    self.pool.close()
                    raise
            self.pool.close()
        wanted = minimum if tier is None else tier
        raise unavailable(wanted, refusals or {wanted: f"the way {way} needs mounts"})

    def _prove(self, trials: int = 2) -> None:
        """Change a small workspace by a command, and read the changes.

        Raises WayRefused if the kernel cannot do this, and SandboxUnavailable if each trial fails otherwise.
        """
        base = store_base(self.root, lambda staging: os.makedirs(staging / "old" / "a"))
        try:
            with self.open(base) as workspace:
                result = workspace.run(_PROOF, limits=_FILE_LIMITS)
                seen = [(change.path, change.data) for change in workspace.diff().changes]
        except WayRefused:
            raise
        except (SandboxFault, WorkspaceError, OSError) as error:
            failure = f"{error}"
        else:
            if seen == _PROVED:
                return
            failure = f"a command changed {seen}: {result.ended}, {result.stderr[-300:]!r}"
            if result.ended is EndReason.EXITED:
                raise WayRefused(failure)
        if trials == 1:
            raise SandboxUnavailable(
                f"workspaces in the way `{self.way}` at isolation tier `{self.tier.label}` failed in each "
                f"trial ({failure}). Try again when the machine is less busy, or require another way or tier."
            )
        self._prove(trials - 1)

    def open(self, base: WorkspaceBase) -> Workspace:
        """Open a workspace with the tree of a base, which must be stored below the same root.

        Raises ValueError for a base that is not, OSError, and RuntimeError once closed.
        """
        if self.root.resolve() != base.root.resolve() or not base.path.is_dir():
            raise ValueError(f"the base {base.name} is not stored below {self.root}; store it there first")
        return self.new_workspace(base, base.path if self.way == COPY else None)

    def new_workspace(self, base: WorkspaceBase, content: Path | None) -> Workspace:
        """Open a workspace whose tree is a copy of a folder, or empty: see ``open``, ``Workspace.fork``."""
        if self.pool.closed:
            raise RuntimeError("these workspaces are closed; make new ones")
        folder = self.own.make_folder(secrets.token_hex(8), 0o700)
        try:
            top = self.own.store.make_folder(folder / _TREE, 0o755)
            if content is not None:
                with tree.folder(str(content)) as source, tree.folder(str(top)) as target:
                    tree.copy(source, target)
                    os.fchmod(target, os.fstat(source).st_mode & 0o777)
            return Workspace(self, base, folder)
        except BaseException:
            remove_directory(str(folder))
            raise

    def close(self) -> None:
        """End the fork-servers, and remove all workspaces. No command may be running. Idempotent."""
        if not self.pool.closed:
            self.pool.close()
            self.own.close()


class Workspace(Closing):
    """A tree that starts as a base and keeps its changes. ``Workspaces.open`` makes it.

    One call at a time works on it; calls of other threads wait. Paths are relative, with ``/`` between their
    parts.
    """

    def __init__(self, owner: Workspaces, base: WorkspaceBase, folder: Path) -> None:
        self.base = base
        self._owner, self._folder = owner, folder
        self._lock = threading.Lock()
        self._closed, self._failed = False, ""
        overlay = owner.way == OVERLAY
        self._top = str(folder / _TREE)
        self._place = Place(owner.own.store, folder / _TREE, folder / "work", base.path if overlay else None)
        limits = owner.limits
        self._most = Usage(limits.disk_bytes, limits.disk_entries)
        if not overlay:
            with tree.folder(str(base.path)) as fd:
                self._most += tree.measure(fd, UNLIMITED)
        self._used: Usage | None = None

    def run(
        self,
        argv: Sequence[str],
        *,
        limits: RunLimits,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> RunResult:
        """Run a command whose working directory is the workspace, and end all its processes.

        ``argv[0]`` is a path, or a name that PATH leads to; a command that cannot be executed has the exit
        code 127. /tmp is empty before and gone afterwards. A command that makes the tree larger than the
        limits of the workspace, or larger still if it was so before, is ended with OUTPUT_LIMIT. Raises
        SandboxFault if the sandbox itself failed; the workspace is then of no use any more.
        """
        with self._held():
            if (before := self._usage()).exceeds(UNLIMITED):
                raise WorkspaceError(f"a command made more than {tree.MOST_DEPTH} folders inside each other")
            most = Usage(
                max(self._most.disk_bytes, before.disk_bytes), max(self._most.entries, before.entries)
            )

            def make_job(directory: str) -> SandboxJob:
                return execute_job(
                    *(argv, [], limits),
                    environment={"PWD": directory, **(environment or {})},
                    stdin=stdin,
                    processes=True,
                    directory=directory,
                )

            self._used = None
            try:
                result = self._owner.pool.run_in(self._place, make_job, most)
            except BaseException as error:
                self._failed = f"{error or type(error).__name__}"
                raise
            if (reason := execution_error(result.result)) is not None:
                if result.exit_code != _NOT_FOUND:
                    raise SandboxFault(reason)
                result = replace(result, stderr=reason.encode())
            if self._usage().exceeds(most):
                result = replace(result, ended=EndReason.OUTPUT_LIMIT)
            return result

    def _usage(self) -> Usage:
        """Return what the tree takes, including the base in a copy. It is measured after each command."""
        if self._used is None:
            with tree.folder(self._top) as top:
                self._used = tree.measure(top, UNLIMITED)
        return self._used

    def _require_room(self) -> None:
        """Raise WorkspaceError beyond the limits of the workspace."""
        if self._usage().exceeds(self._most):
            raise WorkspaceError(_NO_ROOM)

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return at most ``max_bytes`` bytes of a regular file, by a command.

        Raises WorkspaceError for a path that is none, and as ``run``.
        """
        return self._command(_READ, path, max_bytes)

    def write(self, path: str, data: bytes) -> None:
        """Write a file, which keeps its mode if it exists, by a command. Missing folders are made.

        Raises WorkspaceError for a path that is something else than a file, or beyond the limits of the
        workspace, and as ``run``.
        """
        self._command(_WRITE, path, stdin=data)

    def _command(self, script: str, path: str, max_bytes: int = 0, stdin: bytes = b"") -> bytes:
        """Run a script on a path that is a regular file or does not exist, and return what it prints."""
        _require_inside(path)
        limits = replace(_FILE_LIMITS, output_bytes=_FILE_LIMITS.output_bytes + max_bytes)
        argv = ["sh", "-c", _CHECK + script, "sh", path, f"{max_bytes}"]
        result = self.run(argv, limits=limits, stdin=stdin)
        if result.ended is EndReason.OUTPUT_LIMIT:
            raise WorkspaceError(_NO_ROOM)
        if result.exit_code != 0:
            told = result.stderr.decode(errors="replace").strip()
            raise WorkspaceError(f"{path!r}: {told[-500:] or result.ended}")
        return result.stdout

    def diff(self) -> WorkspaceDiff:
        """Return what differs from the base. Raises WorkspaceError beyond the limits of the workspace."""
        with self._held():
            return find_differences(
                self._top, str(self.base.path), self._owner.limits, overlay=self._owner.way == OVERLAY
            )

    def snapshot(self) -> WorkspaceBase:
        """Store the present tree as a base. Raises WorkspaceError for a tree that a base cannot have, or that
        is beyond the limits."""
        overlay = self._owner.way == OVERLAY

        def fill(staging: Path) -> None:
            with tree.folder(self._top) as top, tree.folder(str(staging)) as target:
                if overlay:
                    with tree.folder(str(self.base.path)) as below:
                        tree.copy(below, target)
                tree.copy(top, target, as_layer=overlay)

        with self._held():
            self._require_room()
            return store_base(self._owner.root, fill)

    def fork(self) -> Workspace:
        """Open another workspace with the same tree. Files that had several names are then separate.

        Raises WorkspaceError beyond the limits.
        """
        with self._held():
            self._require_room()
            return self._owner.new_workspace(self.base, Path(self._top))

    def close(self) -> None:
        """Remove the workspace. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                remove_directory(str(self._folder))

    @contextlib.contextmanager
    def _held(self) -> Generator[None]:
        """Let no other thread use the workspace meanwhile."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this workspace is closed")
            if self._failed:
                raise SandboxFault(f"the sandbox failed in this workspace before: {self._failed}")
            yield


def _require_inside(path: str) -> None:
    """Raise WorkspaceError unless this is a path inside of a workspace."""
    try:
        names = path.encode().split(b"/")
    except UnicodeEncodeError:
        names = [b""]
    if not {b"", b".", b".."}.isdisjoint(names) or "\0" in path:
        raise WorkspaceError(f"{path!r} is no path inside the workspace; give a relative one without `..`")
