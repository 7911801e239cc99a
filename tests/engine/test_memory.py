"""Freed memory stays in the process once asked for, until it is given back between phases."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

PROBE = """
import resource, sys
from whetstone.engine.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
import torch
for round in range(13):
    if round == 10:  # the heap has found its size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(12_000_000)  # 48 MB, 11,700 pages: more than glibc ever serves from the heap by itself
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.extended
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_large_temporaries_stop_costing_page_faults() -> None:
    faults = {
        mode: int(subprocess.check_output([sys.executable, "-c", PROBE, mode], text=True))
        for mode in ("keep", "as is")
    }
    assert faults["keep"] < 1000
    assert faults["as is"] > 10 * faults["keep"] + 1000


GIVEN_BACK = """
from whetstone.engine.memory import keep_freed_memory, return_freed_memory
assert keep_freed_memory()
import torch

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))

kept, freed = [], []
for _ in range(64):  # 4 MB and 4 MB in turn: what is freed lies in pieces, below what is kept
    freed.append(torch.ones(1_000_000))
    kept.append(torch.ones(1_000_000))
full = resident()
del freed
held = resident()
return_freed_memory()
print(full - held, held - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_of_a_phase_is_returned_in_pieces() -> None:
    """In MB: freeing alone gives nothing back of 256, and the border of two phases gives back nearly all."""
    printed = subprocess.check_output([sys.executable, "-c", GIVEN_BACK], text=True).split()
    by_freeing, at_the_border = map(int, printed)
    assert by_freeing < 30
    assert at_the_border > 200
