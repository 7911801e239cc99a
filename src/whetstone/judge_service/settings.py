"""How the judge serves: where, for whom, and how much it takes in. Torch-free, and without any server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from whetstone.addresses import is_loopback
from whetstone.errors import UserError

DEFAULT_PORT = 8080
_MIB = 1 << 20


class HostLimits(Struct, frozen=True, kw_only=True):
    """What requests are held to, whatever service answers them.

    most_body_bytes: a longer body is refused, whether it is announced or arrives in pieces.
    most_held_bytes: the bodies of all requests together, read and not answered yet.
    head_s, most_head_bytes: in which, and in how much, the head of a request is whole.
    body_silence_s, write_silence_s: how long a client may send nothing of a body that it has begun, or take
        nothing of its answer.
    drain_s: how long requests under way may go on once the server was told to end.
    """

    most_body_bytes: int = 128 * _MIB
    most_held_bytes: int = 1024 * _MIB
    head_s: float = 30.0
    most_head_bytes: int = 64 << 10
    body_silence_s: float = 30.0
    write_silence_s: float = 60.0
    drain_s: float = 60.0


class Limits(HostLimits, frozen=True, kw_only=True):
    """What one request to the judge may ask for, and all of them together.

    most_cases: of one problem. most_programs: of one batch.
    most_memory_mb: what a program may be granted; None: whatever its problem says.
    most_waiting: programs that wait for a place; beyond, requests are told when to come again.
    default_deadline_s, longest_deadline_s: in which a request is answered, or refused.
    known_problem_bytes: the problems that are kept to be named by their hash, as they came.
    """

    most_cases: int = 10_000
    most_programs: int = 10_000
    most_memory_mb: float | None = None
    most_waiting: int = 8192
    default_deadline_s: float = 600.0
    longest_deadline_s: float = 3600.0
    known_problem_bytes: int = 256 * _MIB


class Address(Struct, frozen=True):
    """Where to listen, with how many workers (0: one for each core), and the tokens of those who may ask."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    workers: int = 0
    tokens: tuple[str, ...] = ()

    def check(
        self,
        doing: str = "the judge would answer",
        instead: str = "give --token-file FILE (one token a line), or listen on 127.0.0.1",
    ) -> None:
        """Raise UserError where anybody could ask: beyond this machine a token is required.

        doing, instead: who would do what for everybody, and the way out, in the message.
        """
        if not 0 <= self.port <= 65535:
            raise UserError(f"port {self.port}: expected 0 (any free one) to 65535")
        if not self.tokens and not is_loopback(self.host):
            raise UserError(f"{doing} everybody who can reach {self.host}: {instead}")


def read_tokens(path: str) -> tuple[str, ...]:
    """The tokens of a file: one a line, ``#`` begins a comment. Raises UserError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}; give a file with one token a line") from None
    tokens = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not tokens:
        raise UserError(f"{path}: no token in it; write one a line, such as that of: openssl rand -hex 32")
    if any(not token.isascii() or not token.isprintable() or " " in token for token in tokens):
        raise UserError(f"{path}: a token is printable ASCII without blanks")
    return tokens


def from_environment(variables: Mapping[str, str] = os.environ) -> tuple[Address, float | None]:
    """The defaults that ScaleBox's deployments set: HOST, PORT, WORKERS, and MAX_MEM as MiB a program.

    MAX_MEM is in KiB or ``unlimited``, as there. Raises UserError for what is no number.
    """
    host = variables.get("HOST") or Address().host
    port = _whole(variables, "PORT", DEFAULT_PORT)
    workers = _whole(variables, "WORKERS", 0)
    if variables.get("MAX_MEM", "unlimited") in ("", "unlimited"):
        return Address(host, port, workers), None
    kib = _whole(variables, "MAX_MEM", 0)
    if kib == 0:
        raise UserError("MAX_MEM=0 leaves no memory; give KiB for one program, or `unlimited`")
    return Address(host, port, workers), kib / 1024


def _whole(variables: Mapping[str, str], name: str, default: int) -> int:
    value = variables.get(name) or str(default)
    if not (value.isascii() and value.isdigit()):
        raise UserError(f"{name}={value} in the environment: expected a whole number")
    return int(value)
