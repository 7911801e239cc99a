"""What a language is to the judge: one entry, of which ``table`` has one for each.

In an entry's command lines, ``{tool[NAME]}`` is the path of a tool found on this machine, ``{home}`` the
folder that the first tool is installed in, ``{kit}`` the folder of what the compiler prepared once (an
argument with it is left out where there is none), ``{memory_mb}`` the memory limit,
``{stack_mb}`` and ``{stack_kb}`` the stack that a runtime with stacks of its own may have, ``{source}``
the source file and ``{main}`` what the source says is to be started.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

SUM_INPUT, SUM_OUTPUT = "17 25\n", "42\n"
"""What every language's ``proof`` reads, and what it prints."""


@dataclass(frozen=True)
class Kit:
    """What a compiler prepares once for all programs: ``commands`` over ``files`` make what is kept.

    With a kit, ``use`` comes before the commands that compile. There is no need for one where the pattern
    ``unless`` finds something in the tools' folder.
    """

    files: dict[str, str]
    commands: tuple[tuple[str, ...], ...]
    keep: tuple[str, ...]
    use: tuple[tuple[str, ...], ...] = ()
    unless: str = ""


@dataclass(frozen=True)
class Language:
    """How programs of one language are compiled and run. No ``run``: Python, which has a fork-server."""

    name: str
    spoken: str
    """What people call it, in a prompt."""
    proof: str
    """The smallest honest program: it reads two integers on a line and prints their sum (``SUM_INPUT``)."""
    aliases: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    """Of the files that its programs are in, without the dot."""
    fences: tuple[str, ...] = ()
    """What models write on the fence of a block, besides the names."""
    whole: str = ""
    """A pattern found in every whole program, and rarely in a piece of one."""
    begins: str = ""
    """A pattern for the first line of a whole program."""
    source: str = ""
    """The file that a program is compiled in."""
    places: Callable[[str], tuple[str, str]] | None = None
    """Where the text of a program decides: the file it must be in, and the ``{main}`` that is started."""
    tools: tuple[str, ...] = ()
    """Executables that must be there, found on PATH; the first one's version is the language's."""
    install: str = ""
    """What a person installs to have it."""
    version: tuple[str, ...] = ("--version",)
    reads: tuple[str, ...] = ()
    """Glob patterns of what the tools read outside of their own folder and the system's libraries."""
    compile: tuple[tuple[str, ...], ...] = ()
    compile_space_mb: int = 0
    """What a compiler that reserves no more than it uses may reserve; 0 for one that reserves more."""
    keep: tuple[str, ...] = ()
    """Glob patterns of the compiler's products, which a run finds in its working directory."""
    kit: Kit | None = None
    run: tuple[str, ...] = ()
    out_of_memory: tuple[str, ...] = ()
    """What its runtime says on standard error when memory is refused to it and it gives up. A program that
    forges this has failed all the same, with MEMORY_LIMIT in the place of RUNTIME_ERROR."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    extra_memory_mb: int = 0
    """Resident memory of the runtime itself, on top of a problem's limit."""
    extra_cpu_s: float = 0.0
    """CPU time that the runtime takes to start, on top of a problem's limit."""
    processes: bool = False
    """Programs of it usually start processes, beyond threads."""
    needs_namespaces: str = ""
    """Why the restricted tier cannot run it; empty where it can."""
