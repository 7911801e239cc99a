"""From a publisher's store to replicas: the same bits, by the shortest way, within bounds, or not at all."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from tests.weights.published import Side, StoreSource, Trained, follow, same_bits
from whetstone.weights.manifest import (
    FormatMismatch,
    VersionId,
    decode_struct,
    dump_manifest,
    encode_struct,
    load_manifest,
    make_manifest,
)
from whetstone.weights.publisher import EncodedVersion, VersionEncoder
from whetstone.weights.replica import VersionRejected, WeightReplica
from whetstone.weights.shards import TensorShard, whole_tensors
from whetstone.weights.source import VersionEvicted
from whetstone.weights.streams import CorruptData
from whetstone.weights.version_store import VersionStore


def test_a_replica_follows_bit_for_bit_and_a_late_one_takes_a_copy(side: Side) -> None:
    source = StoreSource(side.store)
    held = side.trained.published(0)
    replica = WeightReplica(held, "tiny")
    kinds: list[list[bool]] = []
    for number in range(4):
        side.publish(number)
        steps = follow(replica, source)
        kinds.append([step.manifest.base is None for step in steps])
        assert same_bits(held, side.trained.published(number))
    assert kinds == [[True], [False], [False], [False]]
    assert source.plan(replica.version_id) == []
    late = WeightReplica(before := Trained().published(1), "tiny")
    assert [step.manifest.base is None for step in follow(late, source)] == [True]
    assert same_bits(before, held)


def test_only_differing_parts_of_a_full_copy_are_fetched(side: Side) -> None:
    side.publish(0)
    source = StoreSource(side.store)
    replica = WeightReplica(side.trained.published(0), "tiny")
    [step] = follow(replica, source)
    assert (source.fetched, step.changed_elements) == (0, 0)
    assert replica.version_id == step.manifest.version_id


def test_one_that_missed_versions_replays_their_deltas_and_beyond_the_chain_takes_a_copy() -> None:
    side = Side(Trained(), keep=3)
    source = StoreSource(side.store)
    replicas = [WeightReplica(side.trained.published(0), "tiny") for _ in range(2)]
    side.publish(0)
    for replica in replicas:
        follow(replica, source)
    for number in range(1, 4):
        side.publish(number)
    assert [step.manifest.number for step in follow(replicas[0], source)] == [1, 2, 3]
    for number in range(4, 9):
        side.publish(number)
        assert side.store.kept_counts[1] <= 3
    [step] = follow(replicas[1], source)
    assert (step.manifest.number, step.manifest.base) == (8, None)
    side.publisher.close()


def test_new_readers_share_the_copy_of_a_slow_one_within_the_limit() -> None:
    side = Side(Trained(), copies=3, keep=2)
    side.publish(0)
    [full] = side.store.plan(None)
    slow = side.store.open(0, None)
    first = slow.part(0)
    for number in (1, 2):
        side.publish(number)
    # The slow one still reads version 0, and who comes now shares it.
    assert slow.part(0) == first
    assert [m.number for m in side.store.plan(None)] == [0, 1, 2]
    side.publish(3)
    # The chain from 0 is cut: it is still read, but the next one begins with the newest.
    assert slow.part(0) == first
    assert [m.number for m in side.store.plan(None)] == [3]
    second = side.store.open(3, None)
    side.publish(4)
    side.publish(5)
    # Both of two old copies are read and there is room for three in all: the older is taken back.
    with pytest.raises(VersionEvicted):
        slow.part(0)
    second.part(0)
    assert side.store.kept_counts == (3, 2)
    for reading in (slow, second):
        reading.close()
    with pytest.raises(VersionEvicted):
        side.store.open(full.number, None)
    side.publisher.close()


@pytest.mark.parametrize("full", [True, False])
def test_damaged_parts_change_nothing_and_the_replica_stays_on_its_version(side: Side, full: bool) -> None:
    source = StoreSource(side.store)
    held = side.trained.published(3 if full else 0)
    replica = WeightReplica(held, "tiny")
    side.publish(0)
    if not full:
        follow(replica, source)
        side.publish(1)
    before, mark = {n: t.clone() for n, t in held.items()}, replica.version_id
    rng = random.Random(0)

    def damaged(data: bytes) -> bytes:
        if len(data) < 100:
            return data
        bad = bytearray(data)
        # A single bit may be padding, without which the words are the same.
        bad[rng.randrange(20, len(bad))] ^= 0xFF
        return bytes(bad)

    source.damage = damaged
    for _ in range(30):
        with pytest.raises(VersionRejected, match="arrived damaged"):
            follow(replica, source)
        assert same_bits(held, before)
        assert replica.version_id == mark
    source.damage = bytes
    follow(replica, source)
    assert same_bits(held, side.trained.published(0 if full else 1))


def test_a_replica_with_other_weights_than_its_version_refuses_the_changes(side: Side) -> None:
    source = StoreSource(side.store)
    held = side.trained.published(0)
    replica = WeightReplica(held, "tiny")
    side.publish(0)
    follow(replica, source)
    held["layers.0.weight"][5, 5] += 1
    side.publish(1)
    with pytest.raises(VersionRejected, match=r"`layers.0.weight` has another checksum"):
        follow(replica, source)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held.pop("bias"), "`bias`, which this model does not have"),
        (lambda held: held.update(more=torch.zeros(1)), "without `more`"),
        (lambda held: held.update(bias=torch.zeros(5)), r"bfloat16 \[5\], and is float32 \[5\]"),
        (lambda held: held.update(count=torch.arange(6)), r"int64 \[5\], and is int64 \[6\]"),
    ],
)
def test_another_model_is_refused_by_name(side: Side, change: Any, said: str) -> None:
    held = side.trained.published(0)
    change(held)
    side.publish(0)
    with pytest.raises(VersionRejected, match=said):
        follow(WeightReplica(held, "tiny"), StoreSource(side.store))
    with pytest.raises(VersionRejected, match=r"for `tiny`, but this model is `other`"):
        follow(WeightReplica(side.trained.published(0), "other"), StoreSource(side.store))


def test_numbers_increase_and_tensors_keep_their_shapes(side: Side) -> None:
    side.publish(3)
    with pytest.raises(ValueError, match="version 3 after version 3"):
        side.publish(3)
    with pytest.raises(ValueError, match="differs from the previous version in shape"):
        side.publisher.begin(4, whole_tensors([("other", torch.zeros(2))] * 7))


def test_shards_of_two_ranks_make_one_version() -> None:
    trained = Trained()
    shelves = (VersionStore(), VersionStore())
    ranks = [VersionEncoder("tiny", store) for store in shelves]
    held = trained.published(0)
    held["layers.0.weight"].zero_()
    replica = WeightReplica(held, "tiny")
    for number in range(3):
        tensors = trained.tensors(number)
        encoded = [
            publisher.begin(number, rows_of(tensors, rank)).result() for rank, publisher in enumerate(ranks)
        ]
        sent = decode_struct(encode_struct(encoded[1]), EncodedVersion, 1 << 20)
        ranks[0].announce(encoded[0], [sent])
        follow(replica, StoreSource(*shelves))
        assert same_bits(held, trained.published(number))
    assert replica.version_id is not None
    assert replica.version_id.number == 2
    for publisher in ranks:
        publisher.close()


def rows_of(tensors: dict[str, Tensor], rank: int) -> list[TensorShard]:
    """As FSDP2 would shard them: rows up to a third on rank 0, the rest on rank 1; scalars on rank 0."""
    pieces: list[TensorShard] = []
    for name, tensor in tensors.items():
        third = -(-len(tensor) // 3) if tensor.dim() else 1
        rows = tensor[:third] if tensor.dim() and rank == 0 else tensor[third:] if tensor.dim() else tensor
        part = rows if tensor.dim() or rank == 0 else tensor.reshape(-1)[:0]
        start = 0 if rank == 0 or not part.numel() else tensor[:third].numel()
        pieces.append(TensorShard(name, tuple(tensor.shape), start, part))
    return pieces


def test_manifests_that_are_false_are_damaged(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    side.publish(0)
    [manifest] = side.store.plan(None)
    good = dump_manifest(manifest)
    assert load_manifest(good) == manifest
    shard = manifest.shards[0]
    block = shard.blocks[0]
    false = {
        "another model": msgspec.structs.replace(manifest, model="other"),
        "a word twice": with_block(manifest, msgspec.structs.replace(block, offset=1)),
        "no such tensor": with_block(manifest, msgspec.structs.replace(block, tensor=99)),
        "too large": with_block(manifest, msgspec.structs.replace(block, count=1 << 40)),
        "no parts": msgspec.structs.replace(manifest, shards=[msgspec.structs.replace(shard, parts=[])]),
        "nothing": msgspec.structs.replace(manifest, shards=[]),
    }
    for bad in false.values():
        with pytest.raises(CorruptData):
            load_manifest(dump_manifest(bad))
    # The contents may not be what this format has.
    other = msgspec.structs.replace(false["nothing"], format=3)
    with pytest.raises(FormatMismatch, match="in format 3, and format 2 is read here: install the same"):
        load_manifest(dump_manifest(other))
    with pytest.raises(ValueError, match=r"0 of \d+ elements"):
        make_manifest("tiny", 0, manifest.tensors, [])
    with monkeypatch.context() as patch:
        patch.setattr("whetstone.weights.manifest.MANIFEST_BYTES", 100)
        with pytest.raises(CorruptData, match="of which 100 are read"):
            load_manifest(good)
    rng = random.Random(0)
    for _ in range(500):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(CorruptData):
            assert (
                load_manifest(bytes(bad[: rng.randrange(len(bad) // 2, len(bad) + 1)])).digest
                == manifest.digest
            )


def with_block(manifest: Any, block: Any) -> Any:
    shard = manifest.shards[0]
    changed = msgspec.structs.replace(shard, blocks=[block, *shard.blocks[1:]])
    return msgspec.structs.replace(manifest, shards=[changed])


def test_a_version_of_another_run_with_the_same_number_is_not_taken_for_it(side: Side) -> None:
    side.publish(0)
    side.publish(1)
    for number in (0, 1, 2):
        [full] = side.store.plan(VersionId(number, b"another checksum"))
        assert (full.number, full.base) == (1, None)
