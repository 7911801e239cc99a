"""SIGKILL at ten random moments of a run of 20 steps, on one rank and on two, changes nothing of its end."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.run.test_ranks_of_a_run import movement, replies
from tests.run.tiny_recipe import timeless, write_recipe
from whetstone.cli.main import main
from whetstone.report.metrics import read_metrics

STEPS, KILLS = 20, 10
SETTINGS = (
    f"trainer.steps={STEPS}",
    "trainer.checkpoint_every=3",
    "evaluation.every=10",
    "algorithm.kl_coef=0.01",
)
LAST = Path("checkpoints") / f"step-{STEPS}"


def fork(command: list[str], log: Path, environment: dict[str, str]) -> int:
    """``whetstone`` with these words, in a process that need not import torch again; its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ |= environment
        status = main(command)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


class Life:
    """A run on its way, one process for each rank as torchrun would start them."""

    def __init__(self, recipe: Path, out: Path, ranks: int, port: int) -> None:
        self.log = out.with_suffix(".log")
        command = ["train", str(recipe), f"out={out}", *SETTINGS]
        of_all = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        of_all["GLOO_SOCKET_IFNAME"] = "lo"
        self.running = {
            fork(command, self.log, of_all | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(ranks)
        }
        self.ends: list[int] = []

    @property
    def goes_on(self) -> bool:
        """Whether no rank has ended yet."""
        self._look(os.WNOHANG)
        return not self.ends

    def kill(self, draw: random.Random) -> None:
        """SIGKILL all ranks at once, or one: the others notice and end."""
        victims = sorted(self.running)
        for victim in victims if draw.random() < 0.5 else [draw.choice(victims)]:
            os.kill(victim, signal.SIGKILL)

    def end(self) -> bool:
        """Wait for all ranks; whether all have ended well. When one has not, the rest go as torchrun would
        have it: by SIGTERM, and after half a minute by SIGKILL."""
        patience = 0.0
        while self.running:
            self._look(os.WNOHANG)
            if any(self.ends):
                sent = signal.SIGTERM if patience == 0 else signal.SIGKILL if patience > 30 else 0
                for child in self.running:
                    os.kill(child, sent)
                patience += 0.05
            time.sleep(0.05)
        return not any(self.ends)

    def _look(self, options: int) -> None:
        for child in list(self.running):
            ended, status = os.waitpid(child, options)
            if ended:
                self.running.remove(child)
                self.ends.append(os.waitstatus_to_exitcode(status))


def kill_after(life: Life, out: Path, records: int, draw: random.Random) -> bool:
    """SIGKILL a while after the ``records``-th record is there: in any part of a step, or of the start."""
    metrics = out / "metrics.jsonl"
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline and life.goes_on:
        if records == 0 or (metrics.exists() and metrics.read_bytes().count(b"\n") >= records):
            break
        time.sleep(0.005)
    steps = (
        [r["time"]["step"] for r in read_metrics(metrics) if r["kind"] == "train"]
        if records and life.goes_on
        else []
    )
    time.sleep(draw.uniform(0, 1.5 * steps[-1] if steps else 3.0))
    if life.goes_on:
        life.kill(draw)
        return not life.end()
    assert life.end(), life.log.read_text(encoding="utf-8")[-4000:]
    return False


def killed_run(recipe: Path, out: Path, ranks: Iterator[int], seed: int) -> int:
    """A run that is killed at random moments and then goes to its end; returns how often it was killed."""
    draw = random.Random(seed)
    moments = sorted(draw.sample(range(STEPS - 2), KILLS))
    done = 0
    for records in moments:
        life = Life(recipe, out, next(ranks), free_port())
        done += kill_after(life, out, records, draw)
    last = Life(recipe, out, next(ranks), free_port())
    assert last.end(), last.log.read_text(encoding="utf-8")[-4000:]
    print(f"{done} kills, a while after as many records as {moments} (seed {seed})")
    return done


def whole_run(recipe: Path, out: Path, ranks: int) -> Path:
    life = Life(recipe, out, ranks, free_port())
    assert life.end(), life.log.read_text(encoding="utf-8")[-4000:]
    return out


def always(*sizes: int) -> Iterator[int]:
    while True:
        yield from sizes


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def same_bits(run: Path, other: Path) -> bool:
    a, b = (load_file(path / LAST / "model.safetensors") for path in (run, other))
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A judge that outlives the kills, so that no life has to start one."""
    log = tmp_path_factory.mktemp("judge") / "service.log"
    command = [sys.executable, "-m", "whetstone", "judge", "serve", "--port", "0", "--workers", "1"]
    with log.open("wb") as said, subprocess.Popen(command, stderr=said) as service:
        try:
            while not (port := listening(log)):
                assert service.poll() is None, log.read_text()
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            service.terminate()


def listening(log: Path) -> int:
    lines = [json.loads(line) for line in log.read_text().splitlines(True) if line.endswith("}\n")]
    return next((int(line["port"]) for line in lines if line["event"] == "listening"), 0)


@pytest.fixture(scope="module")
def recipe(judge: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = write_recipe(tmp_path_factory.mktemp("recipe"))
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("judge: {workers: 1}", f"judge: {{url: '{judge}'}}"), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def uninterrupted(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_run(recipe, tmp_path_factory.mktemp("whole") / "one", 1)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_on_as_many_ranks_the_killed_run_ends_at_the_same_bits(
    ranks: int, recipe: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    whole = uninterrupted if ranks == 1 else whole_run(recipe, tmp_path / "whole", ranks)
    killed = tmp_path / "killed"
    assert killed_run(recipe, killed, always(ranks), seed=ranks) > KILLS // 2
    assert same_bits(killed, whole)
    assert timeless(killed / "metrics.jsonl") == timeless(whole / "metrics.jsonl")
    assert replies(killed) == replies(whole)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 1), (1, 2)], ids=["2 to 1", "1 to 2"])
def test_between_one_rank_and_two_the_killed_run_ends_at_the_same_weights(
    sizes: tuple[int, int], recipe: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    assert killed_run(recipe, killed, always(*sizes), seed=sum(sizes) * sizes[0]) > KILLS // 2
    assert replies(killed) == replies(uninterrupted)
    moved = movement(killed / LAST, uninterrupted / LAST, uninterrupted / "start")
    print(f"distance from the uninterrupted run, in units of the movement: {moved:.1e}")
    assert moved < 1e-3
