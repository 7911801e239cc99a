"""Checkpoints: exact, never torn, and one always remains, with real kills and a real full disk."""

import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from tests.trainer.tiny_models import random_batch, tiny_llama
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.trainer.checkpoint import CheckpointSaver, checkpoint_error, latest_checkpoint, load_checkpoint
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer


def tokenizer():
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4}
    plain = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="</s>", pad_token="<pad>")


def make_trainer(dtype=torch.bfloat16, **changes):
    return Trainer(
        tiny_llama(dtype, **changes),
        algorithm_named("dr_grpo"),
        TrainerSection(lr=1e-3),
        temperature=1.0,
        max_tokens=12,
    )


def save(run_dir, trainer, step=None, keep=2, state=None, worth=None, ranks=None):
    step = trainer.version if step is None else step
    begin(CheckpointSaver(run_dir, keep=keep, also_keep=worth, ranks=ranks), trainer, step, state)
    return run_dir / "checkpoints" / f"step-{step}"


def begin(saver, trainer, step, state=None):
    saver.save(
        step,
        model=trainer.model,
        tokenizer=tokenizer(),
        trainer_state=trainer.state_dict(),
        state=state or {},
    )


def names(run_dir: Path) -> list[str]:
    return sorted(p.name for p in (run_dir / "checkpoints").iterdir())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_resumed_run_makes_the_same_next_step_bit_for_bit(tmp_path, dtype):
    going = make_trainer(dtype)
    going.step(random_batch(0))
    state = {"flow": {"cursor": 3, "rng": [1, 2.5, None]}, "name": "Grüße"}
    path = save(tmp_path, going, state=state)
    loaded = load_checkpoint(path)
    assert (loaded.step, loaded.state) == (1, state)
    resumed = make_trainer(dtype)
    state = resumed.state_dict()
    loaded.read_into(state)
    resumed.load_state_dict(state)
    assert going.step(random_batch(1)) == resumed.step(random_batch(1))
    found = resumed.state_dict()
    assert all(torch.equal(tensor, found[name]) for name, tensor in going.state_dict().items())


def test_a_checkpoint_is_a_plain_model_folder(tmp_path):
    trainer = make_trainer()
    trainer.step(random_batch(0))
    path = save(tmp_path, trainer)
    model = AutoModelForCausalLM.from_pretrained(path)
    assert model.dtype == torch.bfloat16
    expected = trainer.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    assert AutoTokenizer.from_pretrained(path).decode([3, 4]) == "a b"


def test_only_the_newest_are_kept(tmp_path):
    trainer = make_trainer()
    for step in (8, 9, 10, 11):
        save(tmp_path, trainer, step)
    assert names(tmp_path) == ["step-10", "step-11"]
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoints" / "step-11"


def test_a_selected_step_is_kept_in_addition_to_the_newest(tmp_path):
    trainer = make_trainer()
    asked = []

    def worth(steps):
        asked.append(steps)
        return {2}

    for step in (1, 2, 3, 4):
        save(tmp_path, trainer, step, keep=1, worth=worth)
    assert names(tmp_path) == ["step-2", "step-4"]
    assert asked[-1] == [4, 3, 2]


def truncate(path):
    file = path / "trainer" / "__0_0.distcp"
    os.truncate(file, file.stat().st_size // 2)


def flip_a_byte(path):
    file = path / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)


DAMAGE = {
    "truncated": (truncate, "bytes instead of"),
    "flipped": (flip_a_byte, "contents of model.safetensors have changed"),
    "file gone": (lambda p: (p / "config.json").unlink(), "config.json is missing"),
    "no manifest": (lambda p: (p / "manifest.json").unlink(), "manifest.json is missing"),
    "torn manifest": (lambda p: os.truncate(p / "manifest.json", 40), "manifest.json cannot be read"),
    "empty manifest": (lambda p: (p / "manifest.json").write_text('{"files": {}}'), "no training state"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_and_its_fault_is_told(tmp_path, kind):
    damage, fault = DAMAGE[kind]
    trainer = make_trainer()
    older, newer = save(tmp_path, trainer, 1), save(tmp_path, trainer, 2)
    damage(newer)
    told = []
    assert latest_checkpoint(tmp_path, told.append) == older
    assert len(told) == 1
    assert str(newer) in told[0]
    assert fault in told[0]
    with pytest.raises(UserError, match="not a valid checkpoint"):
        load_checkpoint(newer)


def test_when_no_checkpoint_is_whole_that_is_an_error_and_not_a_fresh_start(tmp_path):
    trainer = make_trainer()
    for step in (1, 2):
        truncate(save(tmp_path, trainer, step))
    with pytest.raises(UserError, match=r"step-2 .*bytes instead.*step-1 .*out=FOLDER"):
        latest_checkpoint(tmp_path)


def test_resuming_behind_a_damaged_checkpoint_replaces_it_and_keeps_the_good_one(tmp_path):
    trainer = make_trainer()
    save(tmp_path, trainer, 1, keep=1)
    truncate(save(tmp_path, trainer, 9, keep=2))
    save(tmp_path, trainer, 2, keep=1)
    assert names(tmp_path) == ["step-2"]
    truncate(save(tmp_path, trainer, 3, keep=2))
    save(tmp_path, trainer, 3, keep=2)
    assert names(tmp_path) == ["step-2", "step-3"]
    assert checkpoint_error(tmp_path / "checkpoints" / "step-3") is None


def test_a_replaced_checkpoint_counts_until_its_successor_is_in_place(tmp_path):
    path = save(tmp_path, make_trainer(), 4)
    path.rename(path.with_name("step-4.replaced"))
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoints" / "step-4.replaced"
    assert load_checkpoint(tmp_path / "checkpoints" / "step-4.replaced").step == 4
    save(tmp_path, make_trainer(), 4)
    assert names(tmp_path) == ["step-4"]


def test_a_run_without_checkpoints_has_no_latest(tmp_path):
    assert latest_checkpoint(tmp_path) is None


def start_child(work) -> tuple[int, int]:
    """Run ``work(tell)`` in a forked process; returns its id and the reading end of what it tells."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            # The lock of transformers' bars is a semaphore that forks share: killed inside one, this
            # process would keep it from its parent for ever.
            disable_progress_bar()
            work(lambda text: os.write(writing, f"{text}\n".encode()))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    return child, reading


@pytest.mark.process
def test_a_process_killed_while_saving_leaves_the_last_checkpoint_it_told_of(tmp_path):
    trainer = make_trainer(hidden_size=64, vocab_size=4000)
    first = 1
    for attempt in range(6):

        def work(tell, first=first):
            for step in range(first, first + 1000):
                save(tmp_path, trainer, step)
                tell(step)

        child, reading = start_child(work)
        with os.fdopen(reading) as told:
            last = int(told.readline())
            # Fall into different places of the next save: whichever it is, the promise must hold.
            time.sleep(0.017 * attempt)
            os.kill(child, signal.SIGKILL)
            last = max([last, *map(int, told.read().split())])
        os.waitpid(child, 0)
        latest = latest_checkpoint(tmp_path)
        assert latest is not None
        first = load_checkpoint(latest).step + 1
        assert first > last
    save(tmp_path, trainer, first)
    assert all(name.startswith("step-") for name in names(tmp_path))


def kill_before_change(count: int) -> None:
    """Let this process die just before its ``count``-th change of a checkpoint folder (0 is the first)."""
    left = count
    changes = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "open"}

    def hook(event, arguments):
        nonlocal left
        if event in changes and "step-" in str(arguments[0]):
            if event == "open" and "w" not in str(arguments[1]):
                return
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@pytest.mark.process
def test_a_kill_at_every_change_of_the_folder_leaves_a_valid_checkpoint(tmp_path):
    """Step 2 is saved twice beside step 1, so that writing, replacing and removing are all met."""
    trainer = make_trainer()
    save(tmp_path / "base", trainer, 1, keep=1)
    for count in range(200):
        run_dir = tmp_path / f"run-{count}"
        shutil.copytree(tmp_path / "base", run_dir)

        def work(tell, count=count, run_dir=run_dir):
            kill_before_change(count)
            save(run_dir, trainer, 2, keep=1)
            save(run_dir, trainer, 2, keep=1)

        child, reading = start_child(work)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        latest = latest_checkpoint(run_dir)
        assert latest is not None, f"nothing was left by a kill before change {count}"
        load_checkpoint(latest)
        if os.WIFEXITED(status):
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert os.WIFEXITED(status)
    assert os.WEXITSTATUS(status) == 0
    assert count > 20
    assert names(run_dir) == ["step-2"]


@pytest.mark.process
@pytest.mark.parametrize("share", [0.5, 0.01])
def test_a_full_disk_is_reported_and_leaves_the_older_checkpoint(tmp_path, share):
    """A limit on the size of files stands in for a full disk: writing stops inside one of them."""
    trainer = make_trainer()
    older = save(tmp_path, trainer, 1)
    limit = int(share * max(file.stat().st_size for file in older.rglob("*")))

    def work(tell):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            save(tmp_path, trainer, 2)
        except UserError as error:
            tell(error)

    child, reading = start_child(work)
    with os.fdopen(reading) as told:
        message = told.read()
    assert os.waitpid(child, 0)[1] == 0
    assert f"no space left to write {tmp_path / 'checkpoints' / 'step-2'}: free some space, lower" in message
    assert f"{older} is still valid" in message
    assert names(tmp_path) == ["step-1"]
    assert checkpoint_error(older) is None


def test_state_that_is_not_plain_data_leaves_nothing_behind(tmp_path):
    with pytest.raises(TypeError):
        save(tmp_path, make_trainer(), 1, state={"rng": object()})
    assert names(tmp_path) == []


def test_the_manifest_covers_every_file(tmp_path):
    path = save(tmp_path, make_trainer(), 1)
    listed = json.loads((path / "manifest.json").read_text())["files"]
    assert {*listed, "manifest.json"} == {
        str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()
    }
    copied = tmp_path / "elsewhere"
    shutil.copytree(path, copied)
    assert checkpoint_error(copied) is None
