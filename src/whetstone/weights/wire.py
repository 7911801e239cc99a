"""What crosses a connection between publisher and replica: who is there, short messages, and bytes.

Both sides prove that they know the token without saying it, each by a keyed hash of what both drew at random.
Nothing is encrypted. Every length is bounded before room is made for it, and whoever is silent for longer
than the other waits is left.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
import time
from typing import TypeVar

import msgspec
from msgspec import Struct

from whetstone.weights.codec import Damaged
from whetstone.weights.manifest import Mark
from whetstone.weights.settings import TOKEN_VARIABLE
from whetstone.weights.source import Denied, Unreachable

MAGIC = b"whetstone weights 1\n"
MESSAGE_BYTES = 4096
"""The most that a message may have."""

_NONCE = 32
_LENGTH = struct.Struct("<I")
_SLICE = 1 << 18
T = TypeVar("T")


class AskPlan(Struct, frozen=True, tag="plan"):
    """How to come from ``have`` to the newest version. The answer: Manifests, and their bytes."""

    have: Mark | None
    wait_s: float


class AskPart(Struct, frozen=True, tag="part"):
    """A part of a version, as changes of ``base`` or full. The answer: Part, and its bytes."""

    number: int
    base: int | None
    index: int


class Manifests(Struct, frozen=True, tag="manifests"):
    """How long each of the manifests is that follow."""

    sizes: list[int]


class Part(Struct, frozen=True, tag="part"):
    """How long the part is that follows."""

    size: int


class Failed(Struct, frozen=True, tag="failed"):
    """What was asked for cannot be given. gone: what there is has changed; ask for a plan again."""

    reason: str
    gone: bool = False


Asked = AskPlan | AskPart
Answer = Manifests | Part | Failed


class Link:
    """A connection on which nobody is silent for longer than ``silence_s``."""

    def __init__(self, connection: socket.socket, silence_s: float) -> None:
        self._socket, self._silence_s = connection, silence_s
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Send all of it, as fast as the other side takes it. Raises OSError."""
        self._socket.settimeout(self._silence_s)
        view = memoryview(data)
        while view:
            view = view[self._socket.send(view[:_SLICE]) :]

    def receive(self, size: int, within_s: float | None = None) -> bytearray:
        """Exactly ``size`` bytes, all of them ``within_s`` if given. Raises OSError."""
        data = bytearray(size)
        view = memoryview(data)
        until = None if within_s is None else time.monotonic() + within_s
        while view:
            wait = self._silence_s if until is None else until - time.monotonic()
            if wait <= 0:
                raise TimeoutError(f"no whole message within {within_s:.0f} s")
            self._socket.settimeout(wait)
            count = self._socket.recv_into(view[:_SLICE])
            if not count:
                raise ConnectionResetError("the connection ended")
            view = view[count:]
        return data

    def say(self, message: Struct) -> None:
        """Send a message."""
        data = msgspec.msgpack.encode(message)
        self.send(_LENGTH.pack(len(data)) + data)

    def hear(self, kind: type[T], within_s: float, limit: int = MESSAGE_BYTES) -> T:
        """The next message. Raises OSError when none comes in time, and Damaged for what is none."""
        until = time.monotonic() + within_s
        size: int = _LENGTH.unpack(self.receive(_LENGTH.size, within_s))[0]
        if size > limit:
            raise Damaged(f"a message of {size} bytes")
        data = self.receive(size, max(until - time.monotonic(), 0.01))
        try:
            return msgspec.msgpack.decode(data, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Damaged(f"no message: {error}") from None

    def admit(self, token: str, within_s: float) -> bool:
        """The publisher's side of the greeting: whether the other knows the token."""
        ours = secrets.token_bytes(_NONCE)
        self.send(MAGIC + ours)
        heard = bytes(self.receive(2 * _NONCE, within_s))
        theirs, proof = heard[:_NONCE], heard[_NONCE:]
        known = hmac.compare_digest(proof, _proof(token, b"replica", ours, theirs))
        self.send(b"\1" + _proof(token, b"publisher", ours, theirs) if known else bytes(1 + _NONCE))
        return known

    def greet(self, token: str, within_s: float, address: str) -> None:
        """The replica's side. Raises OSError, and Denied for no publisher, or one of another token."""
        heard = bytes(self.receive(len(MAGIC) + _NONCE, within_s))
        if not heard.startswith(MAGIC):
            raise Denied(f"{address}: what listens there publishes no weights, or of another Whetstone")
        theirs, ours = heard[len(MAGIC) :], secrets.token_bytes(_NONCE)
        self.send(ours + _proof(token, b"replica", theirs, ours))
        heard = bytes(self.receive(1 + _NONCE, within_s))
        if not hmac.compare_digest(heard, b"\1" + _proof(token, b"publisher", theirs, ours)):
            raise Denied(
                f"{address}: the publisher of weights has another token; start both with the same one "
                f"({TOKEN_VARIABLE})"
            )

    def close(self) -> None:
        """End the connection, also for a thread that waits on it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT, with brackets around a host that has colons. Raises Unreachable."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise Unreachable(f"`{address}` is no address; give HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _proof(token: str, role: bytes, publisher: bytes, replica: bytes) -> bytes:
    return hmac.digest(token.encode(), role + publisher + replica, "sha256")
