"""Payload and result of the ``execute`` harness, which runs commands that a sandbox's profile allows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from whetstone.sandbox.job import RunLimits, SandboxFault, SandboxJob
from whetstone.sandbox.tiers import EXECUTE
from whetstone.sandbox.zygote.run_execute import FAILED, FAULT, MADE

_LIST_BYTES = 1 << 20
_CODE_DIGITS = 4
_Size = Annotated[int, msgspec.Meta(ge=0)]


class NotExecuted(SandboxFault):
    """A command could not be executed although its fork-server lives: a tool is missing."""


@dataclass(frozen=True)
class File:
    """A file to create, named relative to the private directory. All files are executable."""

    name: str
    data: bytes


@dataclass(frozen=True)
class CommandFailure:
    """A command that failed: its exit code (negative: the signal), and the beginning of its messages."""

    code: int
    messages: str


def execute_job(
    argv: Sequence[str],
    files: Sequence[File],
    limits: RunLimits,
    *,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    link: int | None = None,
    processes: bool = False,
    directory: str = "",
) -> SandboxJob:
    """Return a job that writes ``files`` and then becomes the program ``argv``.

    The program is an absolute path, ``./name``, or a name that PATH leads to. It starts in ``directory``, if
    that is given. ``link``, a socket, becomes the program's standard input and output. With ``processes``,
    the program runs only if a limit on the number of processes is known to hold.
    """
    head = {"argv": list(argv), "commands": [], "keep": [], "space": 0}
    head |= {"processes": processes, "directory": directory}
    return SandboxJob(EXECUTE, _payload(head, files, environment or {}), limits, stdin, link)


def make_job(
    commands: Sequence[Sequence[str]],
    files: Sequence[File],
    keep: Sequence[str],
    limits: RunLimits,
    *,
    environment: Mapping[str, str] | None = None,
    space_bytes: int = 0,
) -> SandboxJob:
    """Return a job that runs ``commands`` on ``files``; ``read_products`` reads the products, which match
    ``keep``.

    ``space_bytes`` bounds the address space of each process in addition to the memory limit; 0 means no
    bound.
    """
    lines = [list(argv) for argv in commands]
    head = {"argv": [], "commands": lines, "keep": list(keep), "space": space_bytes, "directory": ""}
    return SandboxJob(EXECUTE, _payload(head, files, environment or {}), limits)


def read_products(result: bytes) -> bytes | CommandFailure:
    """Return the packed products of a make job (see ``unpack_files``), or the command that failed.

    Raises NotExecuted if a command could not be started, and ValueError for a malformed result.
    """
    kind, rest = result[:1], result[1:]
    if kind == MADE:
        return rest
    if kind == FAILED:
        code, _, messages = rest.partition(b"\n")
        return CommandFailure(int(code[:_CODE_DIGITS]), messages.decode("utf-8", "replace"))
    if kind == FAULT:
        raise NotExecuted(f"a compiler could not be run: {execution_error(result)}")
    raise ValueError("no answer of a make job")


def execution_error(result: bytes) -> str | None:
    """Return the reason why a program could not be executed; None if it was. A program that forges it only
    loses."""
    return result[1:].decode("utf-8", "replace") if result[:1] == FAULT else None


def unpack_files(products: bytes, keep: Sequence[str]) -> list[File]:
    """Return the files of a packed product whose names match ``keep``.

    A compiler writes this, and a hostile source may control the compiler. Raises ValueError for a name that
    leads out of the directory, was not requested or is repeated, and for inconsistent sizes.
    """
    line, _, data = products.partition(b"\n")
    if len(line) > _LIST_BYTES:
        raise ValueError(f"the list of packed files is longer than {_LIST_BYTES >> 20} MiB")
    try:
        entries = msgspec.json.decode(line, type=list[tuple[str, _Size]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the list of packed files is malformed: {error}") from None
    if sum(size for _, size in entries) != len(data):
        raise ValueError("the sizes of packed files do not add up")
    files: dict[str, File] = {}
    at = 0
    for name, size in entries:
        if name in files or not _is_kept(name, keep):
            raise ValueError(f"the file {name[:100]!r} was not requested")
        files[name] = File(name, data[at : at + size])
        at += size
    return list(files.values())


def _is_kept(name: str, keep: Sequence[str]) -> bool:
    inside = all(part not in ("", ".", "..") for part in name.split("/")) and "\0" not in name
    return inside and any(fnmatchcase(name, p) or fnmatchcase(name, f"*/{p}") for p in keep)


def _payload(head: Mapping[str, object], files: Sequence[File], variables: Mapping[str, str]) -> bytes:
    entries = [(file.name, len(file.data)) for file in files]
    line = json.dumps({**head, "files": entries, "environment": dict(variables)})
    return b"\n".join((line.encode(), b"".join(file.data for file in files)))
