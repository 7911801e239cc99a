"""CPU seconds of a process and of everything it starts, ended or not."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CPUACCT = Path("/sys/fs/cgroup/cpuacct")
_UNIFIED = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


class CgroupCpu:
    """A control group of its own: exact to the microsecond, and nothing that is forked escapes it."""

    def __init__(self, name: str) -> None:
        """Make the group. Raises OSError where this user may not."""
        if (_CPUACCT / "cpuacct.usage").exists():
            self._group, self._file, self.source = _CPUACCT / name, "cpuacct.usage", "cgroup v1 cpuacct"
        else:
            root = next((r for r in _UNIFIED if (r / "cgroup.procs").exists()), None)
            if root is None:
                raise FileNotFoundError("no cgroup hierarchy")
            self._group, self._file, self.source = root / name, "cpu.stat", "cgroup v2 cpu.stat"
        self._group.mkdir()
        if not (self._group / self._file).exists():
            self._group.rmdir()
            raise FileNotFoundError(f"{self._group} has no {self._file}")

    def add(self, pid: int) -> None:
        """Count this process from now on, and its children."""
        (self._group / "cgroup.procs").write_text(str(pid))

    def seconds(self) -> float:
        """CPU used by all that was ever in the group."""
        text = (self._group / self._file).read_text()
        return int(text) / 1e9 if self._file == "cpuacct.usage" else int(text.split()[1]) / 1e6

    def close(self) -> None:
        """Remove the group, once its processes have ended."""
        with contextlib.suppress(OSError):
            self._group.rmdir()


class WalkCpu:
    """The same by walking /proc, where no group can be made: in clock ticks (10 ms), for batches only."""

    source = "/proc walk (10 ms ticks)"

    def __init__(self) -> None:
        self._root = 0
        self._tick = os.sysconf("SC_CLK_TCK")

    def add(self, pid: int) -> None:
        """Count this process and its descendants."""
        self._root = pid

    def seconds(self) -> float:
        """CPU of the living, and of those their parents have waited for."""
        parents: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                    pid = int(entry.name)
                    parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
        return sum(n for pid, n in ticks.items() if self._descends(pid, parents)) / self._tick

    def _descends(self, pid: int, parents: dict[int, int]) -> bool:
        while pid and pid != self._root:
            pid = parents.get(pid, 0)
        return pid == self._root != 0

    def close(self) -> None:
        """Nothing to give back."""


def tree_cpu(name: str) -> CgroupCpu | WalkCpu:
    """The best meter that this machine offers."""
    try:
        return CgroupCpu(name)
    except OSError:
        return WalkCpu()
