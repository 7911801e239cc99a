"""The description of one language. ``table`` has one for each language.

In command lines, these placeholders are replaced:

- ``{tool[NAME]}``: the path of a tool on this machine
- ``{home}``: the folder in which the first tool is installed
- ``{kit}``: the folder of the compiler kit; an argument with it is omitted if there is no kit
- ``{memory_mb}``: the memory limit
- ``{stack_mb}`` and ``{stack_kb}``: the stack limit for runtimes that have stacks of their own
- ``{source}``: the source file
- ``{main}``: the class or file to start, according to the source
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

# The input of the `probe_source` of each language, and its output.
SUM_INPUT, SUM_OUTPUT = "17 25\n", "42\n"


@dataclass(frozen=True)
class CompilerKit:
    """Files that a compiler prepares once for all programs: ``commands`` turn ``files`` into ``keep``.

    With a kit, the commands ``use`` run before the compile commands. No kit is built if the pattern
    ``unless`` matches a file in the tools' folder.
    """

    files: dict[str, str]
    commands: tuple[tuple[str, ...], ...]
    keep: tuple[str, ...]
    use: tuple[tuple[str, ...], ...] = ()
    unless: str = ""


@dataclass(frozen=True)
class Language:
    """How programs of one language are compiled and run.

    Python has no ``run``, because a fork-server runs it.
    """

    name: str
    display_name: str
    """The name of the language in prompts."""
    probe_source: str
    """The smallest correct program: it reads two integers on a line and prints their sum (``SUM_INPUT``)."""
    aliases: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    """The file endings of its programs, without the dot."""
    fences: tuple[str, ...] = ()
    """Other tags that models write on the fence of a code block."""
    program_pattern: str = ""
    """A pattern that matches in each complete program, and rarely in a part of one."""
    first_line_pattern: str = ""
    """A pattern for the first line of a complete program."""
    source: str = ""
    """The name of the file that is compiled."""
    name_finder: Callable[[str], tuple[str, str]] | None = None
    """Returns the file name and ``{main}`` of a program, if its text decides them."""
    tools: tuple[str, ...] = ()
    """The required executables on PATH. The version of the first one is that of the language."""
    install: str = ""
    """What to install to get the language."""
    version: tuple[str, ...] = ("--version",)
    reads: tuple[str, ...] = ()
    """Glob patterns of files that the tools read outside of their own folder and the system's libraries."""
    compile: tuple[tuple[str, ...], ...] = ()
    compile_space_mb: int = 0
    """The address space for a compiler that reserves no more than it uses; 0 for one that reserves more."""
    keep: tuple[str, ...] = ()
    """Glob patterns of the compiler's products. A run has them in its working directory."""
    kit: CompilerKit | None = None
    run: tuple[str, ...] = ()
    out_of_memory_messages: tuple[str, ...] = ()
    """Messages of the runtime on standard error when it gets no more memory and exits.

    A program that forges one has failed anyway, with MEMORY_LIMIT instead of RUNTIME_ERROR.
    """
    environment: dict[str, str] = field(default_factory=dict[str, str])
    extra_memory_mb: int = 0
    """Resident memory of the runtime itself, in addition to a problem's limit."""
    extra_cpu_s: float = 0.0
    """CPU time that the runtime needs to start, in addition to a problem's limit."""
    processes: bool = False
    """Whether its programs usually start processes, not only threads."""
    needs_namespaces: str = ""
    """Why the restricted tier cannot run it; empty if it can."""

    @property
    def tags(self) -> frozenset[str]:
        """The tags of its code blocks."""
        return frozenset({self.name, *self.aliases, *self.fences})
