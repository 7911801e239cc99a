"""The host file: one host a line, the first is the head."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from whetstone.errors import UserError

_LINE = re.compile(r"(?:(?P<user>[\w.-]+)@)?(?P<name>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(?P<port>\d+))?")
_EXAMPLE = "one host a line, as [USER@]HOST[:SSHPORT]; the first is the head"


class Host(Struct, frozen=True):
    """A machine, as a line of the file names it: how ssh reaches it."""

    name: str
    user: str = ""
    ssh_port: int | None = None

    @property
    def is_here(self) -> bool:
        """Whether it is this machine, where no ssh is needed: ``localhost`` and nothing more."""
        return self == Host("localhost")

    @property
    def target(self) -> str:
        """What ssh calls it."""
        return f"{self.user}@{self.name}" if self.user else self.name


def read_hosts(path: str) -> list[Host]:
    """The hosts of a file. Raises UserError.

    ``#`` begins a comment. What follows a host, as ``slots=8`` does in MPI's files, is not read.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}; give a file with {_EXAMPLE}") from None
    found: dict[str, Host] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if (match := _LINE.fullmatch(words[0])) is None or words[0].startswith("-"):
            raise UserError(f"{path}:{number}: {words[0]!r} is no host; expected {_EXAMPLE}")
        name = match["name"].strip("[]")
        if name in found:
            raise UserError(f"{path}:{number}: {name} is there twice; a machine is one node")
        found[name] = Host(name, match["user"] or "", int(match["port"]) if match["port"] else None)
    if not found:
        raise UserError(f"{path}: no host in it; write {_EXAMPLE}")
    return list(found.values())
