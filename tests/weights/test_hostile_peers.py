"""Peers of the weights port, and folders of weights, that no version of Whetstone writes."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from blake3 import blake3

from tests.weights.published import Side
from whetstone.core.errors import UserError
from whetstone.weights.manifest import FORMAT, load_manifest
from whetstone.weights.shared_folder import READERS, FolderSource
from whetstone.weights.source import PublisherUnreachable
from whetstone.weights.streams import CorruptData
from whetstone.weights.tcp_client import TcpSource
from whetstone.weights.tcp_server import TcpServer
from whetstone.weights.wire import Manifests, Response, WeightLink

NOT_UTF8 = b"\xa2\xff\xfe"


@pytest.fixture
def server(side: Side) -> Iterator[TcpServer]:
    side.publish(0)
    with TcpServer(side.store, silence_s=2.0) as found:
        yield found


def connected(server: TcpServer) -> WeightLink:
    link = WeightLink(socket.create_connection((server.host, server.port)), 5.0)
    link.authenticate_publisher("", 5.0, server.address)
    return link


def packed(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def manifest_bytes(**changes: Any) -> bytes:
    """A manifest of one tensor, with changes and the right checksum."""
    fields: dict[str, Any] = {
        "model": "tiny",
        "number": 5,
        "base": None,
        "tensors": [["a", "float32", [10], 4, 10]],
        "shards": [{"blocks": [[0, 0, 10, b"x" * 16]], "parts": [1]}],
        "format": FORMAT,
        **changes,
    }
    blocks = [block for shard in fields["shards"] for block in shard["blocks"]]
    content = msgspec.msgpack.encode((fields["model"], fields["tensors"], blocks))
    fields["digest"] = blake3(content).digest(16)
    return zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(fields))


def based_on(number: int) -> dict[str, Any]:
    return {"number": number, "digest": b"b" * 16}


@pytest.mark.process
@pytest.mark.parametrize("wait_s", [float("nan"), float("-inf"), -1.0])
def test_a_plan_request_with_an_impossible_wait_is_answered_at_once(
    side: Side, server: TcpServer, wait_s: float
) -> None:
    """A wait of NaN seconds kept a core busy for ever, also after the peer was gone."""
    [newest] = side.store.plan(None)
    have = {"number": newest.number, "digest": newest.digest}
    link = connected(server)
    link.send(packed(msgspec.msgpack.encode({"type": "plan", "have": have, "wait_s": wait_s})))
    answer: Any = link.receive_message(Response, 5.0)  # pyright: ignore[reportArgumentType]
    assert answer == Manifests([])
    link.close()


def test_a_store_answers_a_wait_of_nan_seconds_at_once(side: Side) -> None:
    side.publish(0)
    [newest] = side.store.plan(None)
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(side.store.plan(newest.version_id, float("nan"))), daemon=True
    )
    asking.start()
    asking.join(10.0)
    assert answers == [[]]


@pytest.mark.process
@pytest.mark.parametrize("message", [b"\x81\xa4type" + NOT_UTF8, b"\x81" + NOT_UTF8 + b"\x01", NOT_UTF8])
def test_a_message_that_is_not_utf8_only_ends_its_connection(
    server: TcpServer, message: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    link = connected(server)
    link.send(packed(message))
    with pytest.raises(ConnectionError):
        link.receive(1)
    link.close()
    source = TcpSource(server.address, silence_s=5.0)
    assert len(source.plan(None)) == 1
    source.close()
    assert not failed


@pytest.mark.process
def test_the_server_goes_on_after_a_thread_could_not_start(
    server: TcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = threading.Thread.start, list[str]()

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "weights-link" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    with socket.create_connection((server.host, server.port)) as first:
        first.settimeout(10.0)
        assert first.recv(1) == b""
    assert refused
    source = TcpSource(server.address, silence_s=5.0)
    assert len(source.plan(None)) == 1
    source.close()


@pytest.mark.process
@pytest.mark.parametrize("sends", [True, False])
def test_a_peer_that_is_never_silent_but_too_slow_is_disconnected(
    sends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte in each period of silence kept a connection, and its thread, for years."""
    monkeypatch.setattr("whetstone.weights.wire._SLOWEST", 64 << 20, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link, ended = WeightLink(one, 0.5), threading.Event()

    def trickle() -> None:
        while not ended.wait(0.05):
            other.send(b"x") if sends else other.recv(1024)

    peer = threading.Thread(target=trickle)
    peer.start()
    try:
        with pytest.raises(TimeoutError):
            link.receive(1 << 24) if sends else link.send(bytes(1 << 24))
    finally:
        ended.set()
        peer.join()
        one.close()
        other.close()


@pytest.mark.parametrize("address", ["a" * 70 + ":80", "\ud800:80", "a..b:80", "." + "a" * 64 + ":1"])
def test_an_address_that_no_name_can_be_is_a_user_error(address: str) -> None:
    source = TcpSource(address, silence_s=1.0)
    with pytest.raises(PublisherUnreachable, match="not an address"):
        source.plan(None)


def test_a_shape_of_many_dimensions_costs_no_more_than_its_bytes() -> None:
    """The product of two million sizes took hours, and no other thread ran."""
    data = manifest_bytes(tensors=[["a", "float32", [127] * 2_000_000, 4, 10]])
    began = time.thread_time()
    with pytest.raises(CorruptData, match="2000000 dimensions"):
        load_manifest(data)
    assert time.thread_time() - began < 10.0


@pytest.mark.parametrize("base", [5, 6, 2**40])
def test_changes_of_the_same_or_a_later_version_are_corrupt_data(base: int) -> None:
    with pytest.raises(CorruptData, match=f"changes of version {base}"):
        load_manifest(manifest_bytes(base=based_on(base)))


def test_a_manifest_that_is_not_utf8_is_corrupt_data() -> None:
    whole = zstandard.ZstdDecompressor().decompress(manifest_bytes())
    damaged = zstandard.ZstdCompressor().compress(whole.replace(b"\xa4tiny", b"\xa4\xff\xfe\xff\xfe"))
    with pytest.raises(CorruptData):
        load_manifest(damaged)


@pytest.mark.parametrize("bases", [{5: 5}, {5: 4, 4: 5}, {5: 4, 4: 3, 3: 5}, {5: 9}, {5: 4, 4: 4}])
def test_a_folder_of_circular_changes_is_refused(tmp_path: Path, bases: dict[int, int]) -> None:
    """Reading the plan never ended."""
    (tmp_path / READERS).mkdir()
    for number, base in bases.items():
        folder = tmp_path / f"delta-{number:012d}"
        folder.mkdir()
        (folder / "manifest").write_bytes(manifest_bytes(number=number, base=based_on(base)))
    ended: list[BaseException | None] = []

    def read() -> None:
        try:
            FolderSource(tmp_path).plan(None)
        except (CorruptData, UserError) as error:
            ended.append(error)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(20.0)
    if not ended:
        os.rename(tmp_path, tmp_path.with_name("gone"))  # ends the thread of a reader that goes on
    assert ended
