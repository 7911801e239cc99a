"""Profiles: what the programs of a fork-server may read, execute and import."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TMP_BYTES = 64 << 20
# Our interpreter, outside of any virtual environment.
OWN_INTERPRETER: str = getattr(sys, "_base_executable", "") or sys.executable


@dataclass(frozen=True)
class Profile:
    """The settings of a fork-server for one kind of program. The default profile runs Python programs by
    forking.

    ``reads``: files and folders of this machine that programs may read, in addition to the libraries of the
    system and Python. ``shown_as_kit``: a folder that a jail shows as /kit. ``execute``: programs may execute
    the system's programs, the paths of ``reads`` and their own files. The fork-server then preloads little,
    because an executed program replaces it. ``processes``: executed programs may start processes even on a
    tier that cannot account for them. On other tiers every program may. ``proc``: the jail has a /proc of its
    own processes, if the kernel allows it. Some tools find their parts by it. ``imports``: modules to import
    before the first run, in addition to the standard library, from the folders ``import_from``. These are
    added to ``sys.path``, and the modules must be in ``reads``. ``environment``: variables in addition to the
    usual four. ``interpreter``: the CPython, 3.11 or later, that runs the fork-server and its programs; empty
    for our own.
    """

    name: str = "python"
    interpreter: str = ""
    reads: Sequence[str] = ()
    execute: bool = False
    shown_as_kit: str = ""
    processes: bool = False
    proc: bool = False
    imports: Sequence[str] = ()
    import_from: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    tmp_bytes: int = TMP_BYTES
    """The most bytes that a run may write to its private directory."""
    workspaces: str = ""
    """The folder with the workspaces of runs (see ``whetstone.sandbox.workspace``); empty if there are none.

    In a jail it must have the owner of all workspaces. Without a jail it is the folder in which the
    fork-server makes a place for one workspace at a time.
    """
    hash_seed: int | None = None
    """The seed of Python's hashes of text. With a fixed seed a set has the same order in every run and place.

    With 0, objects also have the same addresses everywhere, if the machine allows it, so sets of objects have
    a fixed order too. None draws a seed for each fork-server. That is required wherever trusted code reads
    data of a program.
    """

    def __post_init__(self) -> None:
        """Raise ValueError for a path that is not absolute, or for processes without execution."""
        paths = (*self.reads, *filter(None, (self.shown_as_kit, self.interpreter, self.workspaces)))
        if not all(path.startswith("/") for path in paths):
            raise ValueError(f"profile {self.name}: {paths} must be absolute paths")
        if self.processes and not self.execute:
            raise ValueError(f"profile {self.name}: `processes` needs `execute`")


PYTHON = Profile()
