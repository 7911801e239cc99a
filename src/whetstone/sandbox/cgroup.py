"""A control group for one fork-server and everything that it forks: usage and limits.

The fork-server joins once, when it starts, so the group costs a run nothing. The usage of a run is a
difference of readings. A group is removed when its fork-server ends. Groups of killed processes are removed
by the next process that starts: the name of a group contains the process that made it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from dataclasses import dataclass

from whetstone.sandbox.job import SandboxFault

CONTROLLERS = ("cpu", "memory", "pids")
# Names in version 1, where CPU *time* has a separate hierarchy.
_V1_CONTROLLERS = {"cpuacct": "cpu", "memory": "memory", "pids": "pids"}


@dataclass(frozen=True)
class _CgroupDirectory:
    """A directory in which a group can be made, and the resources that such a group counts."""

    directory: str
    version: int
    controllers: frozenset[str]
    """A subset of ``CONTROLLERS``."""


def find_places() -> list[_CgroupDirectory]:
    """Return the candidate directories of this process. Only trying shows whether they are writable."""
    try:
        with open("/proc/self/cgroup") as groups, open("/proc/self/mountinfo") as mounts:
            return places(groups.read(), mounts.read())
    except OSError:
        return []


def places(groups: str, mounts: str) -> list[_CgroupDirectory]:
    """Return the directories named by the text of ``/proc/self/cgroup`` and ``/proc/self/mountinfo``.

    Version 1 has one for each useful hierarchy. Version 2 has the own group and its parent, the one with more
    controllers first. A group with processes cannot hand controllers down (cgroups(7), "no internal
    processes"), so a sibling is often the only possibility.
    """
    own = _own_groups(groups)
    found: list[_CgroupDirectory] = []
    for kind, options, root, mount_point in _cgroup_mounts(mounts):
        if kind == "cgroup2":
            if (path := own.get("")) is not None:
                found += _v2_places(_directory(mount_point, root, path), mount_point)
            continue
        counted = {_V1_CONTROLLERS[name] for name in options if name in _V1_CONTROLLERS}
        path = next((own[name] for name in options if name in own), None)
        if counted and path is not None:
            found.append(_CgroupDirectory(_directory(mount_point, root, path), 1, frozenset(counted)))
    return found


def _own_groups(groups: str) -> dict[str, str]:
    """Map a controller name (empty for version 2) to the path of this process's group."""
    own: dict[str, str] = {}
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        own.update(dict.fromkeys(names.split(","), path))
    return own


def _cgroup_mounts(mounts: str) -> list[tuple[str, list[str], str, str]]:
    """Return (file system, options, root of the mount, mount point) of every cgroup mount (proc(5))."""
    found: list[tuple[str, list[str], str, str]] = []
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, *rest = after.split() or [""]
        fields = before.split()
        if kind in ("cgroup", "cgroup2") and rest and len(fields) > 4:
            root, mount_point = (text.encode().decode("unicode_escape") for text in fields[3:5])
            found.append((kind, rest[-1].split(","), root, mount_point))
    return found


def _directory(mount_point: str, root: str, path: str) -> str:
    """Return the directory of group ``path`` below a mount that shows the hierarchy from ``root`` on.

    A container may see its group as the root of the mount although its path is relative to the host's root.
    """
    inside = os.path.relpath(path, root)
    return mount_point if inside.startswith("..") else os.path.normpath(os.path.join(mount_point, inside))


def _v2_places(own: str, mount_point: str) -> list[_CgroupDirectory]:
    candidates = [own] if own == mount_point else [own, os.path.dirname(own)]
    found: list[_CgroupDirectory] = []
    for directory in candidates:
        try:
            with open(os.path.join(directory, "cgroup.subtree_control")) as file:
                handed_down = set(file.read().split())
        except OSError:
            continue
        # CPU time is counted for every group, with or without the controller.
        found.append(_CgroupDirectory(directory, 2, frozenset({"cpu"} | (handed_down & set(CONTROLLERS)))))
    return sorted(found, key=lambda place: -len(place.controllers))


_FREEZER = "run"
"""The name of a freezer inside a group."""
_PREFIX = "whetstone-"
_REMOVE_TIMEOUT_S = 2.0
_UNLIMITED = {1: "-1", 2: "max"}
_READ_FILES = {
    (1, "cpu"): ("cpuacct.usage",),
    (1, "memory"): ("memory.stat", "memory.oom_control"),
    (1, "pids"): ("pids.current",),
    (2, "cpu"): ("cpu.stat",),
    (2, "memory"): ("memory.stat", "memory.swap.current"),
    (2, "pids"): ("pids.current",),
}
_serial = itertools.count()
_swept: set[str] = set()


class ControlGroup:
    """One directory in each hierarchy, which together form one group. Owned by the process that made it.

    Methods raise SandboxFault if the kernel does not answer.
    """

    def __init__(self, directories: dict[str, tuple[_CgroupDirectory, str]]) -> None:
        """``directories`` maps each working controller to its location and new directory."""
        self._directories = directories
        self._files: dict[tuple[str, str], int] = {}
        self._memory_limit: int | None = None
        self.controllers = frozenset(directories)
        for controller, (place, directory) in directories.items():
            for name in _READ_FILES[place.version, controller]:
                path = os.path.join(directory, name)
                with contextlib.suppress(OSError):  # not every kernel has all files; reading shows which
                    self._files[controller, name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if "memory" in directories and directories["memory"][0].version == 1:
            # A process beyond the limit must wait until the meter ends the run. The kernel's OOM killer might
            # pick the fork-server.
            with contextlib.suppress(SandboxFault):
                self._write("memory", "memory.oom_control", "1")

    @property
    def entrances(self) -> list[str]:
        """Files into which a process writes ``0`` to join."""
        directories = dict.fromkeys(directory for _, directory in self._directories.values())
        return [os.path.join(directory, "cgroup.procs") for directory in directories]

    @property
    def unified_directory(self) -> str | None:
        """The directory of version 2; None if all are of version 1."""
        return next((path for place, path in self._directories.values() if place.version == 2), None)

    def version(self, controller: str) -> int:
        """Return the version of a controller, 1 or 2."""
        return self._directories[controller][0].version

    def cpu_s(self) -> float:
        """Return the CPU seconds of all processes that were ever in the group."""
        if self.version("cpu") == 1:
            return int(self._read("cpu", "cpuacct.usage")) / 1e9
        return _field(self._read("cpu", "cpu.stat"), b"usage_usec") / 1e6

    def tasks(self) -> int:
        """Return the present number of processes and threads in the group."""
        return int(self._read("pids", "pids.current"))

    def pids(self) -> list[str]:
        """Return the numbers of its processes in this namespace."""
        path = self.entrances[0]
        try:
            with open(path) as file:
                return file.read().split()
        except OSError as error:
            raise SandboxFault(f"control group: {path}: {error.strerror}") from None

    def set_task_limit(self, limit: int) -> None:
        """Limit the number of processes and threads. Beyond it, fork fails with EAGAIN."""
        self._write("pids", "pids.max", str(limit))

    def memory_bytes(self) -> int:
        """Return the resident and swapped bytes now, shared pages once. Of files in memory, only mapped pages
        count."""
        stat = self._read("memory", "memory.stat")
        anonymous, mapped = (
            (b"rss", b"mapped_file") if self.version("memory") == 1 else (b"anon", b"file_mapped")
        )
        swapped = _field(stat, b"swap") if self.version("memory") == 1 else self._v2_swap()
        return _field(stat, anonymous) + swapped + min(_field(stat, b"shmem"), _field(stat, mapped))

    def _v2_swap(self) -> int:
        try:
            return int(self._read("memory", "memory.swap.current"))
        except SandboxFault:
            return 0  # a kernel without swap accounting

    def memory_exhausted(self) -> bool:
        """Return whether processes are stalled because the limit is reached."""
        if self.version("memory") == 1:
            return _field(self._read("memory", "memory.oom_control"), b"under_oom") > 0
        if self._memory_limit is None:
            return False
        stat = self._read("memory", "memory.stat")
        unreclaimable = sum(_field(stat, name) for name in (b"anon", b"shmem", b"kernel"))
        return unreclaimable - _field(stat, b"slab_reclaimable") >= self._memory_limit

    def limit_memory(self, limit_bytes: int | None) -> None:
        """Stall processes beyond this many bytes of any kind; None removes the limit. An unchanged limit
        costs nothing."""
        if limit_bytes == self._memory_limit:
            return
        version = self.version("memory")
        text = _UNLIMITED[version] if limit_bytes is None else str(limit_bytes)
        # Version 2 kills at memory.max, but only slows down at memory.high.
        self._write("memory", "memory.limit_in_bytes" if version == 1 else "memory.high", text)
        self._memory_limit = limit_bytes

    def _read(self, controller: str, name: str) -> bytes:
        fd = self._files.get((controller, name))
        if fd is None:
            raise SandboxFault(f"control group: {self._path(controller, name)} cannot be read")
        try:
            return os.pread(fd, 16384, 0)
        except OSError as error:
            raise SandboxFault(f"control group: {self._path(controller, name)}: {error.strerror}") from None

    def _path(self, controller: str, name: str) -> str:
        return os.path.join(self._directories[controller][1], name)

    def _write(self, controller: str, name: str, text: str) -> None:
        _write_file(self._path(controller, name), text)

    def remove(self) -> None:
        """Remove the group. Its processes must have ended; the kernel may need a moment."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        for directory in {directory for _, directory in self._directories.values()}:
            remove_directory(directory)


class Freezer:
    """A group of version 2 that freezes the processes of a run. Nothing that they do can undo it.

    The run's first process enters before its program starts, and its children are born there. The fork-server
    stays outside, so that it can end frozen processes. It needs no controller, so a machine with the
    hierarchies of version 1 may offer it too. The freezer of version 1 is not used: its processes cannot be
    killed. Methods raise SandboxFault if the kernel refuses.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def admit(self, pid: int) -> None:
        """Move a process into the group, which is not frozen."""
        self._write("cgroup.freeze", "0")
        self._write("cgroup.procs", str(pid))

    def freeze(self) -> None:
        """Freeze all processes. One that computes stops when the kernel next interrupts it."""
        self._write("cgroup.freeze", "1")

    def thaw(self) -> None:
        """Let all processes continue."""
        self._write("cgroup.freeze", "0")

    def _write(self, name: str, text: str) -> None:
        _write_file(os.path.join(self._directory, name), text)

    def remove(self) -> None:
        """Remove the group. Its processes must have ended; the kernel may need a moment."""
        remove_directory(self._directory)


def make_group() -> ControlGroup | None:
    """Make a group with every available controller. None if there is none."""
    directories: dict[str, tuple[_CgroupDirectory, str]] = {}
    for place in find_places():
        wanted = place.controllers - directories.keys()
        if wanted and (directory := _make_directory(place.directory)) is not None:
            directories.update(dict.fromkeys(wanted, (place, directory)))
    return ControlGroup(directories) if directories else None


def make_freezer(group: ControlGroup | None) -> Freezer | None:
    """Make a freezer, inside the fork-server's group if that is of version 2. None if the kernel refuses."""
    inside = group.unified_directory if group is not None else None
    if inside is not None:
        directory = os.path.join(inside, _FREEZER)
        try:
            os.mkdir(directory, 0o755)
        except OSError:
            return None
        return _usable(directory)
    for place in find_places():
        if place.version == 2 and (made := _make_directory(place.directory)) is not None:
            return _usable(made)
    return None


def _usable(directory: str) -> Freezer | None:
    if os.access(os.path.join(directory, "cgroup.freeze"), os.W_OK):
        return Freezer(directory)
    remove_directory(directory)
    return None


def _make_directory(parent: str) -> str | None:
    """Make a directory for a group. None if the kernel refuses it."""
    if not os.access(parent, os.W_OK):
        return None
    if parent not in _swept:
        _swept.add(parent)
        sweep(parent)
    directory = os.path.join(parent, f"{_PREFIX}{_identity()}-{next(_serial)}")
    try:
        os.mkdir(directory, 0o755)
    except OSError:
        return None
    # A group that cannot be joined is useless. (Outside a control group file system the file does not exist.)
    if os.access(os.path.join(directory, "cgroup.procs"), os.W_OK):
        return directory
    _try_remove(directory)
    return None


def remove_directory(directory: str) -> None:
    """Remove a group whose processes have ended. The kernel may need a moment."""
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    while not _try_remove(directory) and time.monotonic() < deadline:
        time.sleep(0.005)


def _write_file(path: str, text: str) -> None:
    """Write one file of a group. Raises SandboxFault."""
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise SandboxFault(f"control group: {path}: {error.strerror}") from None


def _identity() -> str:
    """Return a unique identity of this process: pid namespace, pid and start time."""
    pid = os.getpid()
    return f"{os.stat('/proc/self/ns/pid').st_ino}-{pid}-{_start_time(pid)}"


def _start_time(pid: int) -> int | None:
    """Return the clock ticks from boot to the start of a process. None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def sweep(directory: str) -> None:
    """Remove groups whose maker is dead. Groups with processes remain until these have ended."""
    own_namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            namespace, pid, start, *_ = (*name.removeprefix(_PREFIX).split("-"), "", "", "")
            if not name.startswith(_PREFIX) or namespace != own_namespace or not pid.isdigit():
                continue  # its maker cannot be seen from here
            group = os.path.join(directory, name)
            if str(_start_time(int(pid))) != start and not _try_remove(group):
                # Processes that are stalled at the limit could not notice that their maker is gone.
                with contextlib.suppress(OSError), open(f"{group}/memory.limit_in_bytes", "w") as file:
                    file.write(_UNLIMITED[1])


def _try_remove(directory: str) -> bool:
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(directory, _FREEZER))
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _field(text: bytes, name: bytes) -> int:
    """Return the number after ``name`` at the start of a line; 0 if there is no such line."""
    at = 0 if text.startswith(name + b" ") else text.find(b"\n" + name + b" ") + 1
    if not at and not text.startswith(name + b" "):
        return 0
    return int(text[at + len(name) :].split(None, 1)[0])
