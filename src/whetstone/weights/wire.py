"""The protocol between publisher and replica: mutual authentication, short messages, and raw bytes.

Both sides prove that they know the token without sending it, with a keyed hash of both sides' nonces. Nothing
is encrypted. Every length is checked before memory is allocated. A side that is silent for too long, or
slower than 16 KiB/s, is disconnected.
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
import numpy as np
from msgspec import Struct

from whetstone.weights.codec import FORMAT
from whetstone.weights.manifest import VersionId
from whetstone.weights.settings import TOKEN_VARIABLE
from whetstone.weights.source import PublisherDenied, PublisherUnreachable
from whetstone.weights.streams import Bytes, CorruptData

_SERVICE = b"whetstone weights "
MAGIC = _SERVICE + b"%d\n" % FORMAT
# The most bytes of a message.
MESSAGE_BYTES = 4096

_NONCE = 32
_LENGTH = struct.Struct("<I")
_SLICE = 1 << 18
# Bytes per second. A peer that is slower on average is disconnected, even if it is never silent.
_SLOWEST = 16 << 10
T = TypeVar("T")


class PlanRequest(Struct, frozen=True, tag="plan"):
    """Requests the steps from ``have`` to the newest version. Answer: Manifests, followed by their bytes."""

    have: VersionId | None
    wait_s: float


class PartRequest(Struct, frozen=True, tag="part"):
    """Requests a part of a version, as changes of ``base`` or in full. Answer: PartHeader, followed by its
    bytes.

    raw: whether a part in full may be sent without compression. Other versions of this program ignore it.
    """

    number: int
    base: int | None
    index: int
    raw: bool = False


class Manifests(Struct, frozen=True, tag="manifests"):
    """The sizes of the manifests that follow."""

    sizes: list[int]


class PartHeader(Struct, frozen=True, tag="part"):
    """The size of the part that follows."""

    size: int


class FetchFailure(Struct, frozen=True, tag="failed"):
    """The request cannot be answered. evicted: the available versions have changed; request a new plan."""

    reason: str
    evicted: bool = False


Request = PlanRequest | PartRequest
Response = Manifests | PartHeader | FetchFailure


class WeightLink:
    """A connection that fails if the other side is silent for longer than ``silence_s``, or too slow."""

    def __init__(self, connection: socket.socket, silence_s: float) -> None:
        self._socket, self._silence_s = connection, silence_s
        self.connect_s = 0.0
        """Seconds in which the connection was made, about those of a message and its answer."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: Bytes) -> None:
        """Send all bytes, as fast as the other side receives them. Raises OSError."""
        view = memoryview(data)
        until = self._deadline(len(data))
        while view:
            self._socket.settimeout(min(self._left(until), self._silence_s))
            view = view[self._socket.send(view[:_SLICE]) :]

    def receive(self, size: int, within_s: float | None = None) -> memoryview:
        """Receive exactly ``size`` bytes, all of them ``within_s`` seconds if given. Raises OSError."""
        # Unlike a bytearray it is not filled with zeros first, and large ones are in large pages.
        data = np.empty(size, np.uint8).data
        view = data
        until = self._deadline(size) if within_s is None else time.monotonic() + within_s
        most_s = self._silence_s if within_s is None else within_s
        while view:
            self._socket.settimeout(min(self._left(until), most_s))
            count = self._socket.recv_into(view[:_SLICE])
            if not count:
                raise ConnectionResetError("the connection ended")
            view = view[count:]
        return data

    def _deadline(self, size: int) -> float:
        return time.monotonic() + self._silence_s + size / _SLOWEST

    def _left(self, until: float) -> float:
        """Return the seconds until ``until``. Raises TimeoutError if they are over."""
        if (left := until - time.monotonic()) <= 0:
            raise TimeoutError("no whole message in time: the other side is too slow")
        return left

    def send_message(self, message: Struct) -> None:
        """Send a message."""
        data = msgspec.msgpack.encode(message)
        self.send(_LENGTH.pack(len(data)) + data)

    def receive_message(self, kind: type[T], within_s: float) -> T:
        """Receive the next message. Raises OSError on a timeout, and CorruptData for an invalid message."""
        until = time.monotonic() + within_s
        size: int = _LENGTH.unpack(self.receive(_LENGTH.size, within_s))[0]
        if size > MESSAGE_BYTES:
            raise CorruptData(f"a message of {size} bytes")
        data = self.receive(size, max(until - time.monotonic(), 0.01))
        try:
            return msgspec.msgpack.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptData(f"no message: {error}") from None

    def authenticate_replica(self, token: str, within_s: float) -> bool:
        """The publisher's side of the authentication. Return whether the replica knows the token."""
        own_nonce = secrets.token_bytes(_NONCE)
        self.send(MAGIC + own_nonce)
        reply = bytes(self.receive(2 * _NONCE, within_s))
        peer_nonce, proof = reply[:_NONCE], reply[_NONCE:]
        known = hmac.compare_digest(proof, _proof(token, b"replica", own_nonce, peer_nonce))
        self.send(b"\1" + _proof(token, b"publisher", own_nonce, peer_nonce) if known else bytes(1 + _NONCE))
        return known

    def authenticate_publisher(self, token: str, within_s: float, address: str) -> None:
        """The replica's side. Raises OSError, and PublisherDenied for another service or another token."""
        reply = bytes(self.receive(len(MAGIC) + _NONCE, within_s))
        if not reply.startswith(_SERVICE):
            raise PublisherDenied(f"{address}: the server there is no publisher of weights")
        if not reply.startswith(MAGIC):
            raise PublisherDenied(
                f"{address}: the publisher has weights in another format than this replica reads; install "
                "the same version of Whetstone on all hosts"
            )
        peer_nonce, own_nonce = reply[len(MAGIC) :], secrets.token_bytes(_NONCE)
        self.send(own_nonce + _proof(token, b"replica", peer_nonce, own_nonce))
        reply = bytes(self.receive(1 + _NONCE, within_s))
        if not hmac.compare_digest(reply, b"\1" + _proof(token, b"publisher", peer_nonce, own_nonce)):
            raise PublisherDenied(
                f"{address}: the publisher of weights has another token; start both with the same token "
                f"({TOKEN_VARIABLE})"
            )

    def close(self) -> None:
        """Close the connection, also for a thread that waits on it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT, with brackets around an IPv6 host. Raises PublisherUnreachable."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise PublisherUnreachable(f"`{address}` is no address; give HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _proof(token: str, role: bytes, publisher: bytes, replica: bytes) -> bytes:
    return hmac.digest(token.encode(), role + publisher + replica, "sha256")
