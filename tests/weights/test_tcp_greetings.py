"""Connections that never prove that they know the token: they are closed, and keep no replica out."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Generator

import pytest

from tests.weights.published import Side, follow, replica_of, same_bits
from tests.weights.test_tcp import until
from whetstone.weights.source import PublisherUnreachable
from whetstone.weights.tcp_client import TcpSource
from whetstone.weights.tcp_server import TcpServer

pytestmark = pytest.mark.process


@contextlib.contextmanager
def silent(port: int, count: int, says: bytes = b"", ends: bool = False) -> Generator[list[socket.socket]]:
    """Connections that never prove anything, after they said this much."""
    with contextlib.ExitStack() as stack:
        peers: list[socket.socket] = []
        for _ in range(count):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            with contextlib.suppress(OSError):
                peer.sendall(says)
                if ends:
                    peer.shutdown(socket.SHUT_WR)
            peers.append(peer)
        yield peers


# What they say before they are silent, and whether they close their side.
_SILENT: dict[str, tuple[bytes, bool]] = {
    "nothing": (b"", False),
    "half a proof": (b"x" * 40, False),
    "a wrong proof": (b"x" * 64, False),
    "more than a proof": (b"x" * 5000, False),
    "nothing, and close their side": (b"", True),
    "half a proof, and close their side": (b"x" * 63, True),
    "a message without a proof": (struct.pack("<I", 5) + b"hello", False),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("says", "ends"), _SILENT.values(), ids=_SILENT.keys())
def test_silent_connections_keep_no_replica_out(side: Side, says: bytes, ends: bool) -> None:
    """More than there is room for, none of which would be closed for its silence within this test."""
    side.publish(0)
    server = TcpServer(side.store, token="secret", greeting_s=3600.0, silence_s=3600.0)
    with server, silent(server.port, 300, says, ends):
        source = TcpSource(server.address, token="secret", streams=2)
        replica, held = replica_of()
        follow(replica, source)
        assert same_bits(held, side.trained.published(0))
        source.close()


def test_replicas_are_counted_apart_from_those_that_prove_nothing(side: Side) -> None:
    side.publish(0)
    with TcpServer(side.store, token="secret", connections=2, greetings=4, greeting_s=3600.0) as server:
        sources = [TcpSource(server.address, token="secret", streams=1) for _ in range(2)]
        for source in sources:
            assert source.plan(None)
        with silent(server.port, 20), pytest.raises(PublisherUnreachable):
            TcpSource(server.address, token="secret", streams=1).plan(None)
        for source in sources:  # those who were there are served on
            assert source.plan(None)
            source.close()


def test_a_connection_that_proves_nothing_is_closed_by_the_server(side: Side) -> None:
    with TcpServer(side.store, token="secret", greeting_s=0.2) as server, silent(server.port, 3) as peers:
        for peer in peers:
            peer.settimeout(50.0)
            heard = b""
            while part := peer.recv(4096):
                heard += part
            assert heard.startswith(b"whetstone weights 2\n")


def test_a_server_that_is_closed_ends_those_that_prove_nothing(side: Side) -> None:
    server = TcpServer(side.store, token="secret", greeting_s=3600.0)
    with silent(server.port, 3) as peers:
        until(lambda: all(peer.recv(1, socket.MSG_PEEK) for peer in peers))
        server.close()
        for peer in peers:
            with contextlib.suppress(ConnectionResetError):
                while peer.recv(4096):
                    pass
