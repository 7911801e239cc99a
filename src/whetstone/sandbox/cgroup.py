"""A control group for one fork-server and all that it forks: what they use, and a bound on it.

The fork-server joins once, when it starts, so the group costs a run nothing; what a run used is a
difference of readings. A group is removed when its fork-server ends. What a killed process left is
removed by the next one that starts: a group's name carries the process that made it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable

from whetstone.sandbox.cgroup_places import Place, find_places
from whetstone.sandbox.job import SandboxFault

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
    """Directories, one for each hierarchy, that together make one group. Owned by the process that made it.

    Its methods raise SandboxFault where the kernel does not answer.
    """

    def __init__(self, made: dict[str, tuple[Place, str]]) -> None:
        """``made`` maps each controller that works here to its place and the new directory."""
        self._made = made
        self._files: dict[tuple[str, str], int] = {}
        self._memory_limit: int | None = None
        self.controllers = frozenset(made)
        for controller, (place, directory) in made.items():
            for name in _READ_FILES[place.version, controller]:
                path = os.path.join(directory, name)
                with contextlib.suppress(OSError):  # some are not in every kernel; reading says which
                    self._files[controller, name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if "memory" in made and made["memory"][0].version == 1:
            # Over the limit a process shall wait for the meter to end the run, never be picked by the
            # kernel: it might pick the fork-server.
            with contextlib.suppress(SandboxFault):
                self._write("memory", "memory.oom_control", "1")

    @property
    def entrances(self) -> list[str]:
        """The files into which a process writes ``0`` to join."""
        directories = dict.fromkeys(directory for _, directory in self._made.values())
        return [os.path.join(directory, "cgroup.procs") for directory in directories]

    def version(self, controller: str) -> int:
        """Whether a controller is of version 1 or 2."""
        return self._made[controller][0].version

    def cpu_s(self) -> float:
        """CPU seconds of everything that was ever in the group."""
        if self.version("cpu") == 1:
            return int(self._read("cpu", "cpuacct.usage")) / 1e9
        return _field(self._read("cpu", "cpu.stat"), b"usage_usec") / 1e6

    def tasks(self) -> int:
        """Processes and threads in the group now."""
        return int(self._read("pids", "pids.current"))

    def set_task_limit(self, limit: int) -> None:
        """No more processes and threads than this: the next one is refused with EAGAIN."""
        self._write("pids", "pids.max", str(limit))

    def memory_bytes(self) -> int:
        """Resident and swapped bytes now, shared pages once; of files in memory, what is mapped."""
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
        """Processes are held up because nothing more can be had under the limit, whatever uses it."""
        if self.version("memory") == 1:
            return _field(self._read("memory", "memory.oom_control"), b"under_oom") > 0
        if self._memory_limit is None:
            return False
        stat = self._read("memory", "memory.stat")
        unreclaimable = sum(_field(stat, name) for name in (b"anon", b"shmem", b"kernel"))
        return unreclaimable - _field(stat, b"slab_reclaimable") >= self._memory_limit

    def limit_memory(self, limit_bytes: int | None) -> None:
        """Hold processes up beyond this many bytes of any kind; None lets them go on. Same again is free."""
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
        return os.path.join(self._made[controller][1], name)

    def _write(self, controller: str, name: str, text: str) -> None:
        path = self._path(controller, name)
        try:
            with open(path, "w") as file:
                file.write(text)
        except OSError as error:
            raise SandboxFault(f"control group: {path}: {error.strerror}") from None

    def remove(self) -> None:
        """Remove the group, whose processes must have been ended; the kernel may need a moment more."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        deadline = time.monotonic() + _REMOVE_TIMEOUT_S
        for _, directory in self._made.values():
            while not _removed(directory) and time.monotonic() < deadline:
                time.sleep(0.005)


def make_group(places: Callable[[], list[Place]] = find_places) -> ControlGroup | None:
    """A new group with every controller that can be had here; None where there is none at all."""
    made: dict[str, tuple[Place, str]] = {}
    name = f"{_PREFIX}{_identity()}-{next(_serial)}"
    for place in places():
        wanted = place.controllers - made.keys()
        directory = os.path.join(place.directory, name)
        if not wanted or not _make_directory(place.directory, directory):
            continue
        made.update(dict.fromkeys(wanted, (place, directory)))
    return ControlGroup(made) if made else None


def _make_directory(parent: str, directory: str) -> bool:
    if not os.access(parent, os.W_OK):
        return False
    if parent not in _swept:
        _swept.add(parent)
        sweep(parent)
    try:
        os.mkdir(directory, 0o755)
    except OSError:
        return False
    # What cannot be joined is of no use. (Elsewhere than in a control group file system, it is not there.)
    if os.access(os.path.join(directory, "cgroup.procs"), os.W_OK):
        return True
    _removed(directory)
    return False


def _identity() -> str:
    """This process, told from every other one that ever runs here: pid namespace, pid, start time."""
    pid = os.getpid()
    return f"{os.stat('/proc/self/ns/pid').st_ino}-{pid}-{_start_time(pid)}"


def _start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process, None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def sweep(directory: str) -> None:
    """Remove groups whose maker is dead. Those that still have processes stay, until these have ended."""
    own_namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            namespace, pid, start, *_ = (*name.removeprefix(_PREFIX).split("-"), "", "", "")
            if not name.startswith(_PREFIX) or namespace != own_namespace or not pid.isdigit():
                continue  # of somebody whose life cannot be seen from here
            group = os.path.join(directory, name)
            if str(_start_time(int(pid))) != start and not _removed(group):
                # Held up at the limit, its processes could not even notice that they are alone.
                with contextlib.suppress(OSError), open(f"{group}/memory.limit_in_bytes", "w") as file:
                    file.write(_UNLIMITED[1])


def _removed(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _field(text: bytes, name: bytes) -> int:
    """The number after ``name`` at the start of a line; 0 where there is no such line."""
    at = 0 if text.startswith(name + b" ") else text.find(b"\n" + name + b" ") + 1
    if not at and not text.startswith(name + b" "):
        return 0
    return int(text[at + len(name) :].split(None, 1)[0])
