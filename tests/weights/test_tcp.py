"""Versions over real sockets: cut, torn, killed, hostile or slow, it is a named error, or the same bits."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from typing import Any

import msgspec
import pytest

from tests.tcp_relay import TcpRelay
from tests.weights.published import Side, Trained, follow, replica_of, same_bits
from whetstone.core.errors import UserError
from whetstone.weights.manifest import dump_manifest
from whetstone.weights.source import PublisherDenied, PublisherUnreachable, VersionEvicted
from whetstone.weights.streams import CorruptData
from whetstone.weights.tcp_client import TcpSource
from whetstone.weights.tcp_server import TcpServer
from whetstone.weights.version_store import VersionStore
from whetstone.weights.wire import Manifests, PartHeader, PartRequest, WeightLink

pytestmark = pytest.mark.process
NOT_UTF8 = b"\xa2\xff\xfe"


@pytest.fixture
def server(side: Side) -> Iterator[TcpServer]:
    with TcpServer(side.store, token="secret") as found:
        yield found


def test_two_replicas_of_different_speed_follow_over_tcp(side: Side, server: TcpServer) -> None:
    fast, slow = (TcpSource(server.address, token="secret", streams=n) for n in (3, 1))
    (one, held_one), (two, held_two) = replica_of(), replica_of()
    side.publish(0)
    [slow_full] = slow.plan(None)
    for number in range(1, 5):
        side.publish(number)
        follow(one, fast)
        assert same_bits(held_one, side.trained.published(number))
    # The slow one planned long ago; what it planned with is gone, and it asks again.
    with pytest.raises(VersionEvicted):
        two.prepare(slow_full, slow.fetch)
    follow(two, slow)
    assert same_bits(held_two, held_one)
    for source in (fast, slow):
        source.close()


def test_a_waiting_replica_hears_of_a_version_when_it_is_there(side: Side, server: TcpServer) -> None:
    source = TcpSource(server.address, token="secret")
    assert source.plan(None, 0.01) == []
    publishing = threading.Timer(0.2, side.publish, [0])
    publishing.start()
    assert [m.number for m in source.plan(None, 30.0)] == [0]
    publishing.join()
    source.close()


def test_one_without_the_token_is_told_so_and_so_is_one_of_another_service(
    side: Side, server: TcpServer
) -> None:
    with pytest.raises(PublisherUnreachable, match="has another token; start both with the same token"):
        TcpSource(server.address, token="other").plan(None)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        answering(listening, b"HTTP/1.1 400 Bad Request\r\n" * 9),
        pytest.raises(PublisherUnreachable, match="is no publisher of weights"),
    ):
        TcpSource(f"127.0.0.1:{listening.getsockname()[1]}").plan(None)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        answering(listening, b"whetstone weights 1\n" + bytes(100)),
        pytest.raises(PublisherDenied, match=r"in another format .* the same version of Whetstone"),
    ):
        TcpSource(f"127.0.0.1:{listening.getsockname()[1]}").plan(None)
    with pytest.raises(PublisherUnreachable, match=r"does not answer.*is this its address"):
        TcpSource("127.0.0.1:1").plan(None)
    with pytest.raises(PublisherUnreachable, match="give HOST:PORT"):
        TcpSource("localhost")
    with pytest.raises(UserError, match=r"can reach 0\.0\.0\.0 could fetch the weights: set a token"):
        TcpServer(side.store, host="0.0.0.0")
    with pytest.raises(UserError, match="name another port"):
        TcpServer(side.store, port=server.port)


def test_a_silent_publisher_is_left_and_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        source = TcpSource(f"127.0.0.1:{listening.getsockname()[1]}", silence_s=0.2)
        with pytest.raises(
            PublisherUnreachable, match=r"asked for a plan, does not answer: .*timed? ?out|no whole message"
        ):
            source.plan(None)


@contextlib.contextmanager
def answering(listening: socket.socket, *answers: bytes) -> Generator[None]:
    """Whoever connects gets the next of the answers, and is left."""

    def answer() -> None:
        for data in answers:
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield
    listening.close()
    thread.join(10)


def test_after_a_cut_only_missing_parts_are_fetched(side: Side, server: TcpServer) -> None:
    side.publish(0)
    received = 0

    def cuts_once(data: bytes, from_server: bool) -> bool:
        nonlocal received
        before, received = received, received + len(data) * from_server
        return before < 30_000 <= received

    with TcpRelay(server.port, cuts_once) as relay:
        source = TcpSource(f"127.0.0.1:{relay.port}", token="secret", streams=1)
        replica, held = replica_of()
        held["count"].zero_()
        held["mask"].zero_()
        [step] = follow(replica, source)
        source.close()
    assert relay.losses == 1
    assert same_bits(held, side.trained.published(0))
    assert len(list(step.manifest.part_keys())) == 3


def forked(work: Callable[[int], None]) -> tuple[int, int]:
    """``work`` in a process of its own, which gets a pipe to write to; its id, and the pipe's reading end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    try:
        work(writing)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def publishing(writing: int, port: int, number: int) -> None:
    side = Side(Trained())
    side.publish(number)
    server = TcpServer(side.store, port=port)
    os.write(writing, struct.pack("<H", server.port))
    threading.Event().wait()


def started(port: int, number: int) -> tuple[int, int]:
    """A publisher in a process of its own: its id and port."""
    child, reading = forked(lambda writing: publishing(writing, port, number))
    with os.fdopen(reading, "rb") as told:
        return child, struct.unpack("<H", told.read(2))[0]


def test_a_publisher_killed_in_the_middle_changes_nothing_and_its_successor_goes_on() -> None:
    child, port = started(0, 1)
    replica, held = replica_of()
    before = {name: tensor.clone() for name, tensor in held.items()}
    source = TcpSource(f"127.0.0.1:{port}", streams=1)
    [manifest] = source.plan(None)

    def fetch(of: Any, parts: Any, take: Any) -> None:
        def killing(key: Any, data: Any) -> None:
            take(key, data)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

        source.fetch(of, parts, killing)

    with pytest.raises(PublisherUnreachable, match="a part of version 1, does not answer"):
        replica.prepare(manifest, fetch)
    os.waitpid(child, 0)
    assert same_bits(held, before)
    assert replica.version_id is None
    successor, _ = started(port, 2)
    [step] = follow(replica, source)
    assert step.manifest.number == 2
    assert same_bits(held, Trained().published(2))
    os.kill(successor, signal.SIGKILL)
    os.waitpid(successor, 0)


def test_a_replica_killed_in_the_middle_holds_nothing_back(side: Side, server: TcpServer) -> None:
    side.publish(0)

    def replicating(writing: int) -> None:
        replica, _ = replica_of()
        source = TcpSource(server.address, token="secret", streams=1)

        def stop(key: Any, data: Any) -> None:
            os.write(writing, b"!")
            threading.Event().wait()

        replica.prepare(source.plan(None)[0], lambda m, parts, take: source.fetch(m, parts, stop))

    child, reading = forked(replicating)
    with os.fdopen(reading, "rb") as told:
        assert told.read(1) == b"!"
    for number in (1, 2, 3):
        side.publish(number)
    assert side.store.kept_counts[0] == 3
    assert side.store.plan(None)[0].number == 0
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: side.store.plan(None)[0].number == 3)


def until(true: Callable[[], bool]) -> None:
    """Wait for something that happens as soon as other threads run."""
    for _ in range(30_000):
        if true():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it did not happen within ten minutes")


def test_the_server_survives_arbitrary_messages(side: Side) -> None:
    side.publish(0)
    rng = random.Random(0)
    with TcpServer(side.store, connections=8) as server:
        for n in range(150):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as peer:
                link = WeightLink(peer, 20.0)
                with contextlib.suppress(OSError):
                    if n % 3:
                        link.authenticate_publisher("", 20.0, "here")
                    link.send(strange(rng))
        # Places of those who are being let go are free again soon.
        source = TcpSource(server.address)
        replica, held = replica_of()
        until(lambda: tried(lambda: follow(replica, source)))
        assert same_bits(held, side.trained.published(0))
        source.close()


def tried(work: Callable[[], object]) -> bool:
    with contextlib.suppress(PublisherUnreachable):
        work()
        return True
    return False


def strange(rng: random.Random) -> bytes:
    """A message that is none, of every kind: noise, huge, torn, of other types, out of range."""
    asked = rng.choice(
        [
            PartRequest(0, rng.choice([None, -1, 1 << 62]), rng.choice([-1, 0, 1 << 62])),
            PartRequest(rng.choice([-1, 7]), None, 0),
            {"type": "plan", "have": {"number": "x"}, "wait_s": float("nan")},
            {"type": "part"},
            {"type": "none"},
            [[[]]] * 9,
        ]
    )
    body = msgspec.msgpack.encode(asked)
    return rng.choice(
        [
            rng.randbytes(rng.randrange(200)),
            b"\xff\xff\xff\xff" + body,
            struct.pack("<I", len(body)) + body,
            struct.pack("<I", len(body)) + body[: rng.randrange(len(body))],
            struct.pack("<I", 2000) + b"\x91" * 2000,
        ]
    )


def test_a_hostile_publisher_is_refused_without_a_crash_or_room_made_for_its_claims(side: Side) -> None:
    side.publish(0)
    [manifest] = side.store.plan(None)
    good, rng = dump_manifest(manifest), random.Random(0)

    def said(message: Any, *data: bytes) -> bytes:
        body = msgspec.msgpack.encode(message)
        return struct.pack("<I", len(body)) + body + b"".join(data)

    def torn(data: bytes) -> bytes:
        bad = bytearray(data)
        for _ in range(3):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        return bytes(bad)

    invalid = [
        said(Manifests([1 << 40])),
        said(Manifests([1 << 63])),
        said(Manifests([-5])),
        said(Manifests([8 << 20] * 60)),
        said(Manifests([3]), b"abc"),
        said(PartHeader(5), b"12345"),
        said({"type": "manifests", "sizes": "many"}),
        struct.pack("<I", 9) + b"\x81\xa4type" + NOT_UTF8,
        b"\xff\xff\xff\x7f",
    ]
    damaged = [
        *(said(Manifests([len(good)]), torn(good)) for _ in range(20)),
        *(rng.randbytes(60) for _ in range(5)),
    ]
    for answer in (*invalid, *damaged):
        refuses = pytest.raises if answer in invalid else contextlib.suppress
        with greeting(answer) as port:
            source = TcpSource(f"127.0.0.1:{port}")
            with refuses(CorruptData):
                assert source.plan(None)[0].version_id == manifest.version_id
            source.close()
    with greeting(said(PartHeader(1 << 40))) as port:
        source = TcpSource(f"127.0.0.1:{port}")
        with pytest.raises(CorruptData, match="the answer is not a part"):
            source.fetch(manifest, [(0, 0)], lambda key, data: None)


@contextlib.contextmanager
def greeting(answer: bytes) -> Generator[int]:
    """A publisher that greets well, and gives one answer to all that it is asked."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                link = WeightLink(connection, 20.0)
                with contextlib.suppress(OSError):
                    link.authenticate_replica("", 20.0)
                    connection.recv(4096)
                    link.send(answer)
                link.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_a_shelf_with_nothing_on_it_has_no_plan() -> None:
    assert VersionStore().plan(None) == []
