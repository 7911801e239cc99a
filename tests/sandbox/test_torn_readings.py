"""What processes share is read one by one: some end meanwhile, and some keep the reader waiting."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping

import pytest

from whetstone.sandbox.accounting import Accounting, Proportional, TreeMeter
from whetstone.sandbox.meter import ProcessMeter
from whetstone.sandbox.process_table import MemoryShare, ProcessTable

pytestmark = pytest.mark.process

MB = 1 << 20
SHARED_MB = 64
CHILDREN = 4
FAMILY = f"""
import os, time
x = bytearray(b'x') * ({SHARED_MB} << 20)
for _ in range({CHILDREN}):
    if os.fork() == 0: break
else:
    print("ready", flush=True)
time.sleep(600)
"""
GENERATIONS = f"""
import os, time
kept = []
for _ in range({CHILDREN}):
    kept.append(bytearray(b'x') * ({SHARED_MB // CHILDREN} << 20))
    if os.fork(): time.sleep(600)
print("ready", flush=True)
time.sleep(600)
"""

# Children with the memory of their parent, as vfork's are, that stay so: they never come back from C.
SHARERS = f"""
import ctypes, time
c = ctypes.CDLL(None)
x = bytearray(b'x') * ({SHARED_MB} << 20)
stacks = [ctypes.create_string_buffer(1 << 16) for _ in range({CHILDREN})]
for stack in stacks:
    top = (ctypes.addressof(stack) + len(stack)) & ~15
    assert c.clone(ctypes.cast(c.pause, ctypes.c_void_p), ctypes.c_void_p(top), 0x100 | 17, None) > 0
print("ready", flush=True)
time.sleep(600)
"""


class Ending(ProcessTable):
    """A table in which each process ends as soon as it was read."""

    def memory_share(self, pid: str) -> MemoryShare | None:
        part = super().memory_share(pid)
        os.kill(int(pid), signal.SIGKILL)
        # Its memory is given back after it has left its status, and before it is a zombie.
        while (status := self._read(pid, "status")) and b"State:\tZ" not in status:
            time.sleep(0.001)
        return part


class Forking(ProcessTable):
    """A table that keeps its reader waiting, as the kernel does while a process forks."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, shared=True)
        self.forked = threading.Event()

    def memory_share(self, pid: str) -> MemoryShare | None:
        self.forked.wait()
        return super().memory_share(pid)


class Hesitant(ProcessTable):
    """A table whose reading stops after two processes, and goes on while it is asked who shares memory."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, shared=True)
        self.read: list[str] = []
        self.two_read, self.asked = threading.Event(), threading.Event()

    def memory_share(self, pid: str) -> MemoryShare | None:
        if len(self.read) == 2:
            self.two_read.set()
            self.asked.wait()
        self.read.append(pid)
        return super().memory_share(pid)

    def sharing_with_parents(self, parents: Mapping[str, str]) -> set[str]:
        self.asked.set()
        deadline = time.monotonic() + 60
        while len(self.read) <= CHILDREN and time.monotonic() < deadline:
            time.sleep(0.001)
        return super().sharing_with_parents(parents)


@contextlib.contextmanager
def processes(source: str) -> Generator[int]:
    """The process group of a program that has said it is ready."""
    first = subprocess.Popen([sys.executable, "-S", "-c", source], stdout=subprocess.PIPE, process_group=0)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == b"ready\n"
        yield first.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.communicate()


@pytest.fixture
def family() -> Iterator[int]:
    """The process group of a few processes that share memory by descent."""
    with processes(FAMILY) as group:
        yield group


def read(kind: type[ProcessTable], family: int) -> tuple[int, int | None]:
    """Bytes that the family holds, and what a torn reading said."""
    table = kind(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY), shared=True)
    try:
        table.select_run(family)
        usage = table.usage()
        assert usage.tasks == 1 + CHILDREN
        reading = Proportional(table, usage)
        reading.wait()
        return reading.bytes(usage), reading.torn_bytes(usage)
    finally:
        table.close()


def test_memory_that_processes_share_counts_once(family: int) -> None:
    held, torn = read(ProcessTable, family)
    assert SHARED_MB * MB < held < 1.5 * SHARED_MB * MB
    assert torn is None


def test_the_share_of_an_ended_process_is_not_counted_twice(family: int) -> None:
    held, torn = read(Ending, family)
    assert SHARED_MB * MB < held < 1.5 * SHARED_MB * MB  # the last one had it for itself
    assert torn is not None
    assert torn > 2 * SHARED_MB * MB


def test_memory_of_a_parent_counts_once_also_where_more_is_read_meanwhile() -> None:
    with processes(SHARERS) as group:
        table = Hesitant(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY))
        table.select_run(group)
        try:
            usage = table.usage()
            assert usage.tasks == 1 + CHILDREN
            reading = Proportional(table, usage)
            assert table.two_read.wait(60)
            early = reading.bytes(usage, SHARED_MB * MB)
            reading.wait()
            for held in (early, reading.bytes(usage, SHARED_MB * MB)):
                assert SHARED_MB * MB < held < 1.5 * SHARED_MB * MB
            assert reading.bytes(usage) > CHILDREN * SHARED_MB * MB
        finally:
            table.asked.set()
            table.close()


def test_one_that_holds_too_much_is_told_before_all_are_read() -> None:
    """Where each has what its parent had, the youngest has it all."""
    with processes(GENERATIONS) as first:
        table = Forking(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY))
        accounting = Accounting(None, table)
        accounting.set_first_process(first)
        meter = TreeMeter(ProcessMeter(os.pidfd_open(first)), accounting, SHARED_MB * MB // 2)
        try:
            assert meter.read().tasks == 1 + CHILDREN
            assert SHARED_MB * MB < meter.memory_bytes() < 1.5 * SHARED_MB * MB
        finally:
            table.forked.set()
            meter.close()
            accounting.close()
