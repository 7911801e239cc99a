"""The entry point of the harnesses in a sandbox: one file that imports the other modules by their location.

The fork-server has no packages, only the standard library. So the modules in this folder are imported from
empty packages created here, without the ``__init__`` of the real ones. They are then removed from
``sys.modules``, where a program could find them.

Every fork copies the page tables of all loaded modules. So a sandbox loads only the modules of its role,
which it takes from the name under which the fork-server loads this file.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType

_Main = Callable[[bytes, int, int | None], None]
_NAME_PREFIX = "_whetstone_harness_"  # see ``_load_harness`` in ``sandbox.zygote.start``
# For each role: the harnesses by name, each with its module and function.
_HARNESSES = {
    "program": {"call": ("call", "main")},
    "queried_by_judge": {"program_server": ("program_server", "main")},
    "called_by_tests": {"program": ("program", "main")},
    "tests": {
        "checker": ("deciders", "run_checker"),
        "interactor": ("deciders", "run_interactor"),
        "tests": ("tests", "main"),
    },
    "shared": {"shared_interpreter": ("shared_interpreter", "main")},
}


def _load(role: str) -> tuple[dict[bytes, _Main], list[tuple[bytes, bytes, bytes]]]:
    here = os.path.dirname(os.path.realpath(__file__))
    above = os.path.dirname(here)
    packages = ("whetstone", "whetstone.judge", "whetstone.judge.rpc")
    for name, folder in zip(packages, (os.path.dirname(above), above, here), strict=True):
        package = ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
    mains = {
        name.encode(): getattr(importlib.import_module(f"{packages[-1]}.{module}"), function)
        for name, (module, function) in _HARNESSES[role].items()
    }
    rehearsals = importlib.import_module(f"{packages[-1]}.rehearsal").rehearse(role)
    for name in [name for name in sys.modules if name.partition(".")[0] == "whetstone"]:
        del sys.modules[name]
    return mains, rehearsals


# `REHEARSALS` are for the fork-server: see `sandbox.zygote.rehearsal`.
_MAINS, REHEARSALS = _load(__name__.removeprefix(_NAME_PREFIX))


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run the harness that the payload's first line names, with the rest as its payload."""
    name, _, rest = payload.partition(b"\n")
    _MAINS[name](rest, result_fd, link_fd)
