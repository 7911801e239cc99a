"""What a fresh fork of a preloaded interpreter costs at least: no isolation, no report, nothing measured.

Run under ``python -I -S``, as the fork-server is, and with the same modules loaded.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "_floor_zygote"


def zygote_module(folder: Path, name: str) -> ModuleType:
    """A module of the fork-server, imported as the fork-server imports it: without the packages above it."""
    if PACKAGE not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PACKAGE])
    return importlib.import_module(f"{PACKAGE}.{name}")


class ProgramFork:
    """A child for every case: input in a file, output to nowhere, compile and exec."""

    def __init__(self, options: dict[str, str]) -> None:
        folder = Path(options["zygote"])
        preload = zygote_module(folder, "preload")
        preload.load(zygote_module(folder, "profile").PYTHON)
        preload.freeze_objects()
        self._fork = zygote_module(folder, "kernel").fork
        self._nowhere = os.open(os.devnull, os.O_WRONLY)

    def judge(self, tasks: list[dict[str, Any]]) -> int:
        """The number of tasks of which no child failed (what they print is not looked at)."""
        return sum(all(self._case(*case) for case in _cases(task)) for task in tasks)

    def _case(self, source: str, given: str) -> bool:
        file = os.memfd_create("input")
        os.pwrite(file, given.encode(), 0)
        pid = self._fork()
        if pid == 0:
            self._child(file, source)
        os.close(file)
        return os.waitpid(pid, 0)[1] == 0

    def _child(self, file: int, source: str) -> None:
        code = 1
        try:
            os.dup2(file, 0)
            os.dup2(self._nowhere, 1)
            exec(compile(source, "main.py", "exec"), {"__name__": "__main__"})
            sys.stdout.flush()
            code = 0
        finally:
            os._exit(code)

    def close(self) -> None:
        """Nothing runs between batches."""


class EmptyFork(ProgramFork):
    """A child for every case that only leaves."""

    def _child(self, file: int, source: str) -> None:
        os._exit(0)


def _cases(task: dict[str, Any]) -> list[tuple[str, str]]:
    if "script" in task:
        return [(task["script"], "")]
    return [(task["source"], given) for given, _ in task["cases"]]
