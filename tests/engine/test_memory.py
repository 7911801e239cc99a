"""Freed memory stays in the process once asked for."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_large_temporaries_stop_costing_page_faults() -> None:
    faults = {
        mode: int(subprocess.check_output([sys.executable, "-c", PROBE, mode], text=True))
        for mode in ("keep", "as is")
    }
    assert faults["keep"] < 1000
    assert faults["as is"] > 10 * faults["keep"] + 1000
