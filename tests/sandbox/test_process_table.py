"""Who has not run is not read again: what is said of many processes is still what they use now."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from whetstone.sandbox.accounting import Proportional
from whetstone.sandbox.process_table import ProcessTable

pytestmark = pytest.mark.process

MB = 1 << 20
CHILDREN = 3
FAMILY = f"""
import mmap, os, sys, threading, time
inherited = bytearray(b'x') * (32 << 20)
orders = []
for _ in range({CHILDREN}):
    read, write = os.pipe()
    if os.fork() == 0: break
    orders.append(write)
else:
    print("ready", flush=True)
    for line in sys.stdin:
        child, order = line.split(None, 1)
        os.write(orders[int(child)], order.encode())
    sys.exit()
kept = []
while order := os.read(read, 1000):
    exec(order)
    print("done", flush=True)
"""


class Family:
    """A few processes with memory in common, of which each does what it is told."""

    def __init__(self) -> None:
        command = [sys.executable, "-S", "-c", FAMILY]
        pipe = subprocess.PIPE
        self.first = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0)
        self.said = self.first.stdout or sys.stdin
        assert self.said.readline() == "ready\n"

    def tell(self, child: int, order: str) -> None:
        """Have a child run a line of Python, to its end."""
        assert self.first.stdin is not None
        self.first.stdin.write(f"{child} {order}\n")
        self.first.stdin.flush()
        assert self.said.readline() == "done\n"


@pytest.fixture
def family() -> Iterator[Family]:
    family = Family()
    try:
        yield family
    finally:
        os.killpg(family.first.pid, signal.SIGKILL)
        family.first.communicate()


@pytest.fixture
def table(family: Family) -> Iterator[ProcessTable]:
    table = new_table(family)
    yield table
    table.close()


def new_table(family: Family) -> ProcessTable:
    table = ProcessTable(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY), shared=True)
    table.select_run(family.first.pid)
    return table


ORDERS = [
    "kept.append(bytearray(b'x') * (8 << 20))",
    "kept.clear()",
    "kept.append(mmap.mmap(-1, 4 << 20)); kept[-1].write(b'x' * (4 << 20))",
    "inherited[::4096] = b'y' * len(inherited[::4096])",
    "[None for _ in range(2_000_000)]",
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
]


def test_a_repeated_reading_equals_a_first_reading(family: Family, table: ProcessTable) -> None:
    for order in ORDERS:
        for child in range(CHILDREN):
            table.usage()
            family.tell(child, order)
            first_look = new_table(family)
            said, seen = table.usage(), first_look.usage()
            first_look.close()
            assert said.tasks == seen.tasks
            assert said.holders == seen.holders
            # A child that has just answered may still be on its way to its next wait.
            assert said.resident_bytes == pytest.approx(seen.resident_bytes, abs=MB // 4)
            assert said.least_bytes == pytest.approx(seen.least_bytes, abs=MB // 4)
            assert said.faulted_bytes == pytest.approx(seen.faulted_bytes, abs=MB // 4)
            assert said.cpu_s == pytest.approx(seen.cpu_s, abs=0.05)


def test_tables_of_pages_count_although_nothing_is_in_them(family: Family, table: ProcessTable) -> None:
    """Nobody shares them: the sum of them all is held at least, whatever else is shared."""
    before = table.usage().least_bytes
    sparse = "kept.append(mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000))"
    for child in range(CHILDREN):
        family.tell(child, f"{sparse}; [kept[-1][at] for at in range(0, 8 << 30, 2 << 20)]")
    assert table.usage().least_bytes - before >= CHILDREN * 16 * MB


@pytest.mark.parametrize("order", ORDERS[:1] + ORDERS[2:4])
def test_memory_is_bounded_by_the_last_reading_and_the_pages_given_since(
    family: Family, table: ProcessTable, order: str
) -> None:
    """So nothing need be read again before that could be beyond a limit: also where they unshare."""
    early = Proportional(table, table.usage())
    early.wait()
    for child in range(CHILDREN):
        family.tell(child, order)
        now = Proportional(table, usage := table.usage())
        now.wait()
        most = early.most_bytes(usage)
        assert most is not None
        assert most >= now.bytes(usage) - MB // 4
        assert most < usage.resident_bytes


def test_memory_from_before_the_reading_is_not_growth(family: Family, table: ProcessTable) -> None:
    """A look can be older than the end of a reading, and have seen what is held no more."""
    before = table.usage()
    family.tell(0, ORDERS[0])
    older = table.usage()
    family.tell(0, ORDERS[1])
    reading = Proportional(table, before)
    reading.wait()
    assert reading.bytes(older) == pytest.approx(reading.bytes(table.usage()), abs=MB // 4)
    family.tell(0, ORDERS[0])
    assert reading.bytes(table.usage()) == pytest.approx(reading.bytes(older) + 8 * MB, abs=MB // 2)
