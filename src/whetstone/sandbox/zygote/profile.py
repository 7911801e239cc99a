"""Profiles: what the programs of one fork-server may read, execute and import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TMP_BYTES = 64 << 20


@dataclass(frozen=True)
class Profile:
    """One kind of fork-server. The default one runs Python programs by forking.

    ``reads``: files and folders of this machine that programs see read-only, beyond the system's libraries
    and Python's own. ``shown_as_kit``: a folder to be read as well, which a jail shows as /kit.
    ``execute``: programs may execute the system's programs, what ``reads`` names and their own files; the
    fork-server then loads little, because all of it is gone when a program is executed. ``processes``:
    executed programs may start further processes even on a tier that cannot account for them (on the
    others, everybody may). ``proc``: there is a /proc of the jail's own processes, where the kernel grants
    one (tools find their parts by it). ``imports``: modules to import before the first run, beyond the
    standard library's, from the folders ``import_from`` (put in ``sys.path``; what is imported must be in
    ``reads``). ``environment``: variables on top of the usual four.
    """

    name: str = "python"
    reads: Sequence[str] = ()
    execute: bool = False
    shown_as_kit: str = ""
    processes: bool = False
    proc: bool = False
    imports: Sequence[str] = ()
    import_from: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    tmp_bytes: int = TMP_BYTES
    """What a run may write to its private directory."""
    hash_seed: int | None = None
    """What Python's hashes of text are made with, so that a set has the same order in every run and place.

    With 0 objects also have the same addresses everywhere, where the machine allows that, and so sets of
    them have an order. None: drawn anew for each fork-server, as must be wherever code of ours reads what
    a program made.
    """

    def __post_init__(self) -> None:
        """ValueError for a path that is not absolute, or processes without execution."""
        if any(not path.startswith("/") for path in (*self.reads, self.shown_as_kit or "/")):
            raise ValueError(f"profile {self.name}: {self.reads} must be absolute paths")
        if self.processes and not self.execute:
            raise ValueError(f"profile {self.name}: only executed programs can be given processes")


PYTHON = Profile()
