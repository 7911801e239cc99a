"""The address of an HTTP service, its tokens, and the limits of every request."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from whetstone.core.addresses import is_loopback
from whetstone.core.errors import UserError

DEFAULT_PORT = 8080
_MIB = 1 << 20


class HostLimits(Struct, frozen=True, kw_only=True):
    """The limits of requests, for every service.

    most_body_bytes: a longer body is refused, whether its length is announced or not.
    most_held_bytes: the bodies of all requests together that were read and not answered yet.
    head_s, most_head_bytes: the longest time and the largest size of the head of a request.
    body_silence_s, write_silence_s: the idle timeouts while a client sends a body, and while it reads a
        response.
    drain_s: the time for running requests after the server was told to end.
    """

    most_body_bytes: int = 128 * _MIB
    most_held_bytes: int = 1024 * _MIB
    head_s: float = 30.0
    most_head_bytes: int = 64 << 10
    body_silence_s: float = 30.0
    write_silence_s: float = 60.0
    drain_s: float = 60.0


class Address(Struct, frozen=True):
    """The address to listen on, the number of workers (0: one for each core), and the tokens of clients."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    workers: int = 0
    tokens: tuple[str, ...] = ()

    def check(
        self,
        doing: str = "the judge would answer",
        instead: str = "use --token-file FILE (one token per line), or listen on 127.0.0.1",
    ) -> None:
        """Raise UserError if every client would be accepted: other machines require a token.

        doing, instead: parts of the message: what the service would do for everybody, and the remedy.
        """
        if not 0 <= self.port <= 65535:
            raise UserError(f"port {self.port}: expected 0 (any free port) to 65535")
        # Without tokens, everybody who reaches the address could run programs or read folders.
        if not self.tokens and not is_loopback(self.host):
            raise UserError(f"{doing} everybody who can reach {self.host}: {instead}")


def read_tokens(path: str) -> tuple[str, ...]:
    """Return the tokens of a file: one per line, ``#`` starts a comment. Raises UserError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}; use a file with one token per line") from None
    tokens = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not tokens:
        raise UserError(
            f"{path}: the file has no token; write one per line, such as the output of: openssl rand -hex 32"
        )
    if any(not token.isascii() or not token.isprintable() or " " in token for token in tokens):
        raise UserError(f"{path}: a token must be printable ASCII without blanks")
    return tokens
