"""How parts travel and are worked on: raw or encoded, by the replica's threads, into buffers or copies."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from tests.weights.published import Side, StoreSource, Trained, follow, replica_of, same_bits
from whetstone.weights import tcp_client
from whetstone.weights.codec import decode_full, raw_head
from whetstone.weights.manifest import Manifest
from whetstone.weights.replica import PartWorkers, VersionRejected, WeightReplica
from whetstone.weights.settings import default_threads
from whetstone.weights.source import OnPart, PartKey, VersionEvicted
from whetstone.weights.streams import Bytes, CorruptData
from whetstone.weights.tcp_client import TcpSource, raw_is_faster
from whetstone.weights.tcp_server import TcpServer


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (8, 2), (15, 3), (16, 4), (128, 4)])
def test_a_quarter_of_the_cores_works_on_versions(
    cores: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert default_threads() == threads


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_raw_part_is_the_elements_and_another_size_is_damage(width: int) -> None:
    elements = np.random.default_rng(0).integers(0, 256, 40 * width, np.uint8).view(f"<u{width}")
    data = raw_head(width) + elements.tobytes()
    assert np.array_equal(decode_full(data, width, 40), elements)
    for wrong in (data[:-1], data + b"\0", raw_head(width), data[:5]):
        with pytest.raises(CorruptData):
            decode_full(wrong, width, 40)


@pytest.mark.parametrize(
    ("receive_s", "codec_s", "raw"), [(0.001, 0.04, True), (1.0, 0.04, False), (0.06, 0.04, True)]
)
def test_raw_parts_are_for_links_that_are_faster_than_the_codec(
    receive_s: float, codec_s: float, raw: bool
) -> None:
    assert raw_is_faster(10_000_000, 16_000_000, receive_s, codec_s) == raw


@pytest.mark.process
@pytest.mark.parametrize(("loopback", "faster"), [(True, False), (False, True), (False, False)])
def test_full_parts_travel_raw_on_loopback_and_where_the_first_part_shows_a_fast_link(
    loopback: bool, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []

    def decide(*measured: Any) -> bool:
        asked.append(measured)
        return faster

    monkeypatch.setattr(tcp_client, "is_loopback", lambda host: loopback)
    monkeypatch.setattr(tcp_client, "raw_is_faster", decide)
    side = Side(Trained(2_000_000))
    side.publish(0)
    with TcpServer(side.store) as server:
        source = TcpSource(server.address, streams=1)
        for copy in range(2):
            held = {name: torch.zeros_like(each) for name, each in side.trained.published(0).items()}
            [step] = follow(WeightReplica(held, "tiny"), source)
            assert same_bits(held, side.trained.published(0))
            assert (step.fetched > step.manifest.size) == (loopback or (faster and copy == 1))
        source.close()
    side.publisher.close()
    # Measured once, by the first part that is large enough.
    assert len(asked) == (0 if loopback else 1)


def test_a_slow_reader_of_a_raw_part_loses_it_and_the_trainer_does_not_wait() -> None:
    side = Side(Trained(2_000_000), copies=2)
    side.publish(0)
    reading = side.store.open(0, None)
    size, pieces = reading.raw_part(0)
    first = [bytes(next(pieces)) for _ in range(2)]
    assert size > sum(map(len, first))
    side.publish(1)
    side.publish(2)
    with pytest.raises(VersionEvicted, match="no longer kept in full"):
        next(pieces)
    for index in (-1, 9):
        with pytest.raises(VersionEvicted):
            side.store.open(2, None).raw_part(index)
    side.publisher.close()


def test_copies_get_each_verified_part_at_once_and_none_that_is_damaged(side: Side) -> None:
    side.publish(0)
    side.publish(3)
    held = Trained().published(0)
    addresses = {name: tensor.data_ptr() for name, tensor in held.items()}
    replica = WeightReplica(held, "tiny", copies=True)
    source = StoreSource(side.store)
    [manifest] = source.plan(None)
    prepared = replica.prepare(manifest, source.fetch)
    # Before anything is written, as no memory holds a second model.
    assert same_bits(held, side.trained.published(3))
    prepared.write()
    assert same_bits(held, side.trained.published(3))
    assert {name: tensor.data_ptr() for name, tensor in held.items()} == addresses
    replica.commit(prepared)
    other = Trained().published(1)
    again = WeightReplica(other, "tiny", copies=True)
    again.version_id = manifest.version_id
    source.damage = lambda data: data[:-1]
    with pytest.raises(VersionRejected):
        again.prepare(manifest, source.fetch)
    assert again.version_id is None
    assert same_bits(other, Trained().published(1))


def test_workers_fetch_differences_and_compare_no_more_than_the_reader_requests() -> None:
    compared: list[PartKey] = []
    held = threading.Event()

    def has(key: PartKey) -> bool:
        compared.append(key)
        # After nine comparisons they are slower than the reader.
        if len(compared) > 9:
            held.wait(30)
        return key[1] == 3

    with PartWorkers(1) as workers:
        keys = workers.missing(((0, part) for part in range(40)), has)
        found = [next(keys) for _ in range(8)]
        assert found == [(0, part) for part in range(9) if part != 3]
        held.set()
        found += keys
    assert found == [(0, part) for part in range(40) if part != 3]


def test_a_failed_part_ends_the_fetch_of_the_others() -> None:
    handed: list[int] = []

    def take(key: PartKey, data: Bytes) -> None:
        raise CorruptData(f"part {key[1]}")

    def fetch(keys: Iterable[PartKey], on_part: OnPart) -> None:
        for key in keys:
            on_part(key, b"")
            handed.append(key[1])

    with pytest.raises(CorruptData, match="part 0"), PartWorkers(2) as workers:
        fetch(((0, part) for part in range(1000)), workers.taking(take))
    assert len(handed) < 1000
    with pytest.raises(CorruptData, match="part 7"), PartWorkers(2) as workers:
        workers.taking(take)((0, 7), b"")


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_gives_the_same_version(threads: int, side: Side) -> None:
    side.publish(0)
    held = replica_of()[1]
    replica, source = WeightReplica(held, "tiny", threads=threads), StoreSource(side.store)
    for number in (0, 1):
        if number:
            side.publish(number)
        manifests: list[Manifest] = [step.manifest for step in follow(replica, source)]
        assert [m.number for m in manifests] == [number]
        assert same_bits(held, side.trained.published(number))
