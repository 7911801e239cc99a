"""Versions in a shared folder: whole or not at all, kept while they are read, and no more than agreed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import msgspec
import pytest
import torch

from tests.weights.published import Side, Trained, follow, publish, replica_of, same_bits
from whetstone.core.errors import UserError
from whetstone.weights.manifest import FormatMismatch, dump_manifest, load_manifest
from whetstone.weights.replica import VersionRejected
from whetstone.weights.shared_folder import FolderPublisher, FolderSource, versions
from whetstone.weights.source import VersionEvicted


def put(side: Side, folder: FolderPublisher, number: int) -> None:
    manifest = publish(side.publisher, number, side.trained.tensors(number))
    for form in folder.forms_to_write(manifest):
        folder.stage(number, form.base, len(manifest.shards[0].parts))
        folder.announce(form)


def test_replicas_of_different_speed_follow_a_folder_that_does_not_grow(side: Side, tmp_path: Path) -> None:
    folder = FolderPublisher(tmp_path, side.store, full_every=3)
    (fast, held_fast), (slow, held_slow) = replica_of(), replica_of()
    source, late = FolderSource(tmp_path), FolderSource(tmp_path)
    assert source.plan(None) == []
    for number in range(12):
        put(side, folder, number)
        steps = follow(fast, source)
        assert [(s.manifest.number, s.manifest.base is None) for s in steps] == [(number, number == 0)]
        if number == 4:
            follow(slow, late)
        assert len(versions(tmp_path)) <= 4 * 4
    assert source.plan(fast.version_id) == []
    # Its note kept what leads on from where it stands.
    assert [step.manifest.number for step in follow(slow, late)] == list(range(5, 12))
    trained = side.trained.published(11)
    assert same_bits(held_fast, trained)
    assert same_bits(held_slow, trained)
    source.close()
    late.close()
    assert not list(tmp_path.glob("readers/*.note"))


def test_a_read_version_stays_until_it_is_done_or_its_note_is_old(side: Side, tmp_path: Path) -> None:
    folder = FolderPublisher(tmp_path, side.store, full_every=1, keep=1, notes_s=1e9)
    replica, held = replica_of()
    source = FolderSource(tmp_path)
    put(side, folder, 0)
    [manifest] = source.plan(None)
    put(side, folder, 1)
    assert ("full", 0) in versions(tmp_path)
    prepared = replica.prepare(manifest, source.fetch)
    prepared.write()
    assert same_bits(held, side.trained.published(0))
    # Read or not, twice as many full copies as agreed are the most that stay.
    put(side, folder, 2)
    assert ("full", 0) not in versions(tmp_path)
    with pytest.raises(VersionEvicted):
        source.fetch(manifest, [(0, 0)], lambda key, data: None)
    # A note of one who is no longer there keeps nothing.
    impatient = FolderPublisher(tmp_path, side.store, full_every=1, keep=1, notes_s=-1.0)
    for number in (3, 4):
        put(side, impatient, number)
    assert ("full", 3) not in versions(tmp_path)


@pytest.mark.process
def test_a_publisher_killed_while_it_writes_leaves_whole_versions_only(side: Side, tmp_path: Path) -> None:
    folder = FolderPublisher(tmp_path, side.store)
    put(side, folder, 0)
    [full] = FolderSource(tmp_path).plan(None)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        # Version 1, torn: its shard is there, and the process dies before it is announced.
        other = Side(Trained())
        other.publish(1)
        FolderPublisher(tmp_path, other.store).stage(1, None, len(full.shards[0].parts))
        os.write(writing, b"!")
        threading.Event().wait()
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        assert told.read(1) == b"!"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    replica, held = replica_of()
    source = FolderSource(tmp_path)
    assert [step.manifest.number for step in follow(replica, source)] == [0]
    assert same_bits(held, side.trained.published(0))
    # One who goes on from an earlier version than the folder has is followed, too.
    put(side, folder, 5)
    follow(replica, source)
    again = Side(Trained())
    successor = FolderPublisher(tmp_path, again.store)
    put(again, successor, 2)
    assert versions(tmp_path) == [("full", 2)]
    assert not list(tmp_path.glob(".*.tmp"))
    assert [step.manifest.number for step in follow(replica, source)] == [2]
    assert same_bits(held, side.trained.published(2))
    put(again, successor, 3)
    assert [step.manifest.base is None for step in follow(replica, source)] == [False]
    again.publisher.close()


def test_torn_files_and_wrong_folders_are_errors_with_a_way_out(side: Side, tmp_path: Path) -> None:
    put(side, FolderPublisher(tmp_path, side.store), 0)
    file = tmp_path / "full-000000000000" / "shard-0"
    data = file.read_bytes()
    replica, held = replica_of()
    for bad in (data[:50], data[:9] + b"\xff" * 200 + data[209:], b"\xff" * 8 + data[8:], b""):
        file.write_bytes(bad)
        with pytest.raises(VersionRejected, match="arrived damaged"):
            follow(replica, FolderSource(tmp_path))
        assert torch.count_nonzero(held["layers.0.weight"]) == 0
    manifest = tmp_path / "full-000000000000" / "manifest"
    old = msgspec.structs.replace(load_manifest(manifest.read_bytes()), format=1)
    manifest.write_bytes(dump_manifest(old))
    with pytest.raises(FormatMismatch, match=r"in format 1, .* the same version of Whetstone on all hosts"):
        FolderSource(tmp_path).plan(None)
    with pytest.raises(UserError, match="give the folder in which the trainer publishes weights"):
        FolderSource(tmp_path / "nowhere").plan(None)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        FolderPublisher(tmp_path / "file", side.store)
