"""A damaged checkpoint never takes the place of a valid one, however and whenever it was damaged."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.rank_processes import on_ranks
from tests.trainer.test_checkpoints import DAMAGE, begin, make_trainer, names, save
from whetstone.trainer.checkpoint import CheckpointSaver, checkpoint_error, latest_checkpoint
from whetstone.trainer.ranks import Ranks


def empty(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def become_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("not a folder", encoding="utf-8")


def list_no_files(path: Path) -> None:
    (path / "manifest.json").write_text("[]", encoding="utf-8")


def lose_the_state(path: Path) -> None:
    manifest = path / "manifest.json"
    listed = json.loads(manifest.read_text(encoding="utf-8"))
    del listed["files"]["state.json"]
    manifest.write_text(json.dumps(listed), encoding="utf-8")


def flip_a_bit_unnoticed(path: Path) -> None:
    """Change one bit of the moments, and keep size and time."""
    file = path / "trainer" / "__0_0.distcp"
    before, data = file.stat(), bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


DAMAGES: dict[str, Callable[[Path], object]] = {
    **{name: damage for name, (damage, _) in DAMAGE.items()},
    "empty folder": empty,
    "a file": become_a_file,
    "manifest is a list": list_no_files,
    "state not listed": lose_the_state,
    "one bit, same time": flip_a_bit_unnoticed,
}


def valid(run_dir: Path) -> list[str]:
    return [name for name in names(run_dir) if checkpoint_error(run_dir / "checkpoints" / name) is None]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_does_not_count_among_those_to_keep(tmp_path: Path, kind: str) -> None:
    trainer = make_trainer()
    save(tmp_path, trainer, 1)
    DAMAGES[kind](save(tmp_path, trainer, 2))
    save(tmp_path, trainer, 3)
    assert valid(tmp_path) == ["step-1", "step-3"]
    save(tmp_path, trainer, 4)
    assert names(tmp_path) == ["step-3", "step-4"]


def test_the_last_valid_one_stays_when_the_newest_and_second_newest_are_damaged(tmp_path: Path) -> None:
    trainer = make_trainer()
    for step in (1, 2, 3):
        save(tmp_path, trainer, step, keep=3)
    for step, kind in ((2, "truncated"), (3, "flipped")):
        DAMAGES[kind](tmp_path / "checkpoints" / f"step-{step}")
    # What a run with a separate evaluation does at its end.
    CheckpointSaver(tmp_path, keep=1).prune(3)
    assert valid(tmp_path) == ["step-1"]
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoints" / "step-1"
    save(tmp_path, trainer, 4, keep=1)
    assert names(tmp_path) == ["step-4"]


def test_an_older_valid_one_stays_when_the_damaged_ones_are_worth_keeping(tmp_path: Path) -> None:
    trainer = make_trainer()
    for step in (1, 2):
        save(tmp_path, trainer, step, worth=lambda steps: {2})
    DAMAGES["file gone"](tmp_path / "checkpoints" / "step-2")
    save(tmp_path, trainer, 3, worth=lambda steps: {2})
    assert names(tmp_path) == ["step-1", "step-2", "step-3"]


@pytest.mark.process
def test_several_ranks_keep_the_last_valid_one(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> list[str]:
        trainer, saver = make_trainer(), CheckpointSaver(tmp_path, keep=2, ranks=ranks)
        for step in (1, 2, 3):
            begin(saver, trainer, step)
            if step == 2 and ranks.first:
                DAMAGES["truncated"](tmp_path / "checkpoints" / "step-2")
            ranks.wait("the damage")
        return valid(tmp_path)

    assert on_ranks(2, work) == [["step-1", "step-3"]] * 2


@pytest.mark.drawn(2)
@pytest.mark.parametrize("seed", range(6))
def test_no_order_of_saves_and_damages_removes_a_valid_one_too_early(tmp_path: Path, seed: int) -> None:
    chance, trainer = random.Random(seed), make_trainer()
    for step in range(1, 13):
        keep = chance.randint(1, 3)
        before = len(valid(tmp_path)) if step > 1 else 0
        newest = save(tmp_path, trainer, step, keep=keep)
        assert len(valid(tmp_path)) >= min(keep, before + 1)
        hurt = [name for name in names(tmp_path) if chance.random() < 0.4]
        for name in hurt:
            path = tmp_path / "checkpoints" / name
            if path.is_dir() and checkpoint_error(path) is None:
                DAMAGES[chance.choice(list(DAMAGES))](path)
        assert newest.exists()
