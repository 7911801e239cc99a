"""A fresh interpreter for every case, bare or inside a command that isolates it; tokens are compared."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap
from typing import Any


class PlainPython:
    """``python -c SOURCE``."""

    flags: tuple[str, ...] = ()
    outstanding = 1

    def __init__(self, options: dict[str, str]) -> None:
        self._command = [*self.wrapper(options), options["python"], *self.flags, "-c"]
        self._threads = ThreadPoolExecutor(self.outstanding) if self.outstanding > 1 else None

    def wrapper(self, options: dict[str, str]) -> list[str]:
        """What stands before the interpreter."""
        return []

    def judge(self, tasks: list[dict[str, Any]]) -> int:
        """The number of tasks all of whose cases are right."""
        runs = [(n, *run) for n, task in enumerate(tasks) for run in _runs(task)]
        judged = (
            self._threads.map(self._right, *zip(*runs, strict=True))
            if self._threads
            else starmap(self._right, runs)
        )
        return len(tasks) - len({n for n, right in judged if not right})

    def _right(self, number: int, source: str, given: str, wanted: str) -> tuple[int, bool]:
        done = subprocess.run(
            [*self._command, source], input=given.encode(), capture_output=True, check=False
        )
        return number, done.returncode == 0 and done.stdout.split() == wanted.encode().split()

    def close(self) -> None:
        """Nothing runs between batches."""


def _runs(task: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(source, input, expected output) of each process that a task needs."""
    if "script" in task:
        return [(task["script"], "", "")]
    return [(task["source"], given, wanted) for given, wanted in task["cases"]]


class BarePython(PlainPython):
    """``python -S -E -I``: no ``site``, no environment; the fastest start there is."""

    flags = ("-S", "-E", "-I")


class Bubblewrap(BarePython):
    """All namespaces, a read-only /usr, private /tmp, /proc and /dev, no environment."""

    def wrapper(self, options: dict[str, str]) -> list[str]:
        """The flags of a careful caller."""
        root = "--ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin"
        rest = "--proc /proc --dev /dev --tmpfs /tmp --chdir /tmp --clearenv"
        return [options["bwrap"], *f"--unshare-all --die-with-parent --new-session {root} {rest} --".split()]


class Nsjail(BarePython):
    """All namespaces, a read-only /usr, private /tmp, another user, limits, a short seccomp policy."""

    def wrapper(self, options: dict[str, str]) -> list[str]:
        """The flags of a careful caller."""
        root = "--bindmount_ro /usr --symlink usr/lib:/lib --symlink usr/lib64:/lib64 --tmpfsmount /tmp"
        limits = "--rlimit_as 4096 --rlimit_cpu 10 --time_limit 20 --user 65534 --group 65534"
        denied = "ptrace, process_vm_readv, process_vm_writev, socket, mount, unshare, setns, bpf"
        policy = f"POLICY p {{ ERRNO(1) {{ {denied} }} }} USE p DEFAULT ALLOW"
        command = f"{options['nsjail']} --quiet --mode o {root} --cwd /tmp {limits}"
        return [*command.split(), "--seccomp_string", policy, "--"]


class Firejail(PlainPython):
    """The flags of Code-R1's executor. With ``--timeout`` firejail returns after about two seconds whatever
    it ran, so many are kept going at once: CPU is its figure, not wall time."""

    outstanding = 32

    def wrapper(self, options: dict[str, str]) -> list[str]:
        """Its flags, unchanged."""
        limits = "--rlimit-nproc=32 --rlimit-nofile=32 --rlimit-fsize=2m --rlimit-as=4096m --timeout=00:00:10"
        return [options["firejail"], *f"--private --quiet --seccomp=socket --profile=pip {limits}".split()]
