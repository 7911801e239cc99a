"""For tests of deadlines: a program on a busy machine may get too little of the time for a verdict."""

from __future__ import annotations

import os

import pytest

# Processes that want a core, for each core; the tests themselves cause about two.
_BUSY = 3.0


def skip_if_busy() -> None:
    """Skip the test if the machine has more work than the test suite gives it."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > _BUSY * cores:
        pytest.skip(f"the machine is too busy: load {load:.1f} on {cores} cores")
