"""What to execute where a sandbox's profile allows it: payload and answer of the ``execute`` harness."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from whetstone.sandbox.job import Job, RunLimits, SandboxFault
from whetstone.sandbox.tiers import EXECUTE
from whetstone.sandbox.zygote.run_execute import FAILED, FAULT, MADE

_LIST_BYTES = 1 << 20
_CODE_DIGITS = 4
_Size = Annotated[int, msgspec.Meta(ge=0)]


class NotExecuted(SandboxFault):
    """What a job was to execute could not be, though its fork-server lives: a tool is not there."""


@dataclass(frozen=True)
class File:
    """A file to be, named relative to the private directory. All of them may be executed."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Failed:
    """A command that did not succeed: its exit code (negative: the signal), and how its messages begin."""

    code: int
    said: str


def execute_job(
    argv: Sequence[str],
    files: Sequence[File],
    limits: RunLimits,
    *,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    link: int | None = None,
    processes: bool = False,
) -> Job:
    """A job that puts ``files`` in place and turns into the program ``argv``, an absolute path or ``./name``.

    With ``link`` that socket is the program's standard input and output. With ``processes`` it is only
    executed where a limit on their number is seen to hold.
    """
    head = {"argv": list(argv), "commands": [], "keep": [], "space": 0, "processes": processes}
    return Job(EXECUTE, _payload(head, files, environment or {}), limits, stdin, link)


def make_job(
    commands: Sequence[Sequence[str]],
    files: Sequence[File],
    keep: Sequence[str],
    limits: RunLimits,
    *,
    environment: Mapping[str, str] | None = None,
    space_bytes: int = 0,
) -> Job:
    """A job that runs ``commands`` over ``files``; ``made`` reads the products, which match ``keep``.

    ``space_bytes`` bounds the address space of each process (0: it does not), beyond the limit on memory.
    """
    lines = [list(argv) for argv in commands]
    head = {"argv": [], "commands": lines, "keep": list(keep), "space": space_bytes}
    return Job(EXECUTE, _payload(head, files, environment or {}), limits)


def made(result: bytes) -> bytes | Failed:
    """The products in a make job's result, packed (see ``unpacked``), or the command that failed.

    Raises NotExecuted when a command could not be started, ValueError for bytes that are no answer.
    """
    kind, rest = result[:1], result[1:]
    if kind == MADE:
        return rest
    if kind == FAILED:
        code, _, said = rest.partition(b"\n")
        return Failed(int(code[:_CODE_DIGITS]), said.decode("utf-8", "replace"))
    if kind == FAULT:
        raise NotExecuted(f"a compiler could not be run: {fault(result)}")
    raise ValueError("no answer of a make job")


def fault(result: bytes) -> str | None:
    """Why a program could not be executed; None when it was. (Forging it only loses: it had begun.)"""
    return result[1:].decode("utf-8", "replace") if result[:1] == FAULT else None


def unpacked(products: bytes, keep: Sequence[str]) -> list[File]:
    """The files of a packed product, whose names match ``keep``.

    A compiler writes this, and its source may have taken it over. Raises ValueError for a name that leads out
    of a directory, that nobody asked for or that comes twice, and for sizes that do not add up.
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
            raise ValueError(f"nobody asked for a file {name[:100]!r}")
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
