"""Keeps the processor busy, for judgements that must not depend on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

# It ends with its parent, also if that one is killed.
_PROGRAM = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(1_000_000))
"""


@contextmanager
def busy_processes(count: int) -> Generator[None]:
    """A context in which ``count`` processes compute."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", _PROGRAM]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
