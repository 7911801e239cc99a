"""The first SIGTERM or Ctrl-C ends a run after its current step, with a checkpoint; the second stops it at
once. What was stopped resumes as if it had not been."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import descendants
from tests.run.roles_by_hand import until
from tests.run.test_ranks_of_a_run import ONE_THREAD, SHORT, torchrun
from tests.run.tiny_recipe import finished, record_count, start, timeless
from tests.warm_command import WarmCommand
from whetstone.core.errors import INTERRUPTED
from whetstone.run.signals import StopRequest, drain_on_signal
from whetstone.trainer.checkpoint import checkpoint_error
from whetstone.trainer.ranks import Ranks

# A checkpoint that only a signal causes.
RARE = "trainer.checkpoint_every=50"
SEPARATE = ("evaluation.process=separate", "trainer.checkpoint_every=3")
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]


@pytest.fixture(scope="module")
def uninterrupted(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    finished(recipe, out, RARE)
    return out


def last_step(out: Path) -> int:
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return max(json.loads(line)["step"] for line in lines)


def saved(out: Path) -> list[int]:
    """The steps of the valid checkpoints of a run."""
    found = (out / "checkpoints").glob("step-*")
    return sorted(int(path.name[5:]) for path in found if checkpoint_error(path) is None)


def only(process: int, number: int) -> None:
    os.kill(process, number)


def with_its_children(process: int, number: int) -> None:
    """As a service manager or a batch system does it: the judge's processes get the signal, too."""
    for each in descendants(process):
        # The judge ends processes of its own at any time.
        with suppress(ProcessLookupError):
            os.kill(each, number)
    os.kill(process, number)


def signal_in_step(train: WarmCommand, out: Path, least: int, number: int, send: Callable[..., None]) -> None:
    """Send a signal while the run works on the step after its ``least``-th record."""
    until(lambda: record_count(out) >= least, f"{least} records", train)
    send(train.pid, number)


@pytest.mark.drawn(1)
@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "least", "send", "overrides"),
    [
        (signal.SIGTERM, 2, only, ()),
        (signal.SIGINT, 3, only, ()),
        (signal.SIGTERM, 3, with_its_children, ()),
        pytest.param(signal.SIGINT, 2, with_its_children, (), marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 2, only, SEPARATE, marks=pytest.mark.slow),
    ],
    ids=["SIGTERM", "SIGINT", "all SIGTERM", "all SIGINT", "separate evaluation"],
)
def test_the_first_signal_saves_the_current_step_and_the_run_resumes_exactly(
    number: int,
    least: int,
    send: Callable[..., None],
    overrides: tuple[str, ...],
    recipe: Path,
    uninterrupted: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    with start(recipe, out, RARE, *overrides) as train:
        signal_in_step(train, out, least, number, send)
        assert train.wait() == INTERRUPTED, train.printed("err")
        step = last_step(out)
        assert f"stopped after step {step} of 5, with a checkpoint" in train.printed()
        assert "stopping after this step, with a checkpoint; Ctrl-C again" in train.printed("err")
        assert send is with_its_children or "Traceback" not in train.printed("err")
    assert 1 <= step < 5
    assert saved(out)[-1] == step
    resumed = finished(recipe, out, RARE, *overrides)
    assert f"from step {step}" in resumed.stdout
    assert "later records are repeated" not in resumed.stdout
    trained, whole = (
        [line for line in timeless(folder / "metrics.jsonl") if '"train"' in line]
        for folder in (out, uninterrupted)
    )
    assert trained == whole
    if not overrides:
        assert timeless(out / "metrics.jsonl") == timeless(uninterrupted / "metrics.jsonl")


@pytest.mark.extended
@pytest.mark.process
def test_the_second_signal_stops_at_once_and_leaves_the_last_checkpoint(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    # A step of minutes.
    long = ("trainer.samples_per_prompt=2000", "sampling.max_tokens=400", "evaluation.train_problems=0")
    with start(recipe, out, RARE, *long, "environment.extraction=whole") as train:
        until(lambda: saved(out) == [0], "the first checkpoint", train)
        time.sleep(1)
        os.kill(train.pid, signal.SIGTERM)
        until(lambda: "stopping after this step" in train.printed("err"), "the answer", train)
        assert train.running
        os.kill(train.pid, signal.SIGINT)
        assert train.wait() == INTERRUPTED
        assert "interrupted" in train.printed("err")
        assert "Traceback" not in train.printed("err")
    assert saved(out) == [0]
    assert "train" not in {json.loads(line)["kind"] for line in (out / "metrics.jsonl").open()}


@pytest.mark.process
def test_before_the_first_step_a_signal_stops_at_once(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with start(recipe, out, "warmup.steps=100000") as train:
        until(lambda: (out / ".lock").exists(), "the warm-up", train)
        os.kill(train.pid, signal.SIGTERM)
        assert train.wait() == INTERRUPTED
        assert "stopping after this step" not in train.printed("err")
    assert not (out / "checkpoints").exists()


@pytest.mark.extended
@pytest.mark.process
def test_a_stage_that_is_stopped_is_not_followed_by_the_next(recipe: Path, tmp_path: Path) -> None:
    stages = "stages=[{name: short, trainer: {steps: 40}}, {name: long, trainer: {steps: 3}}]"
    out = tmp_path / "run"
    with start(recipe, out, RARE, stages) as train:
        signal_in_step(train, out / "1-short", 1, signal.SIGINT, only)
        assert train.wait() == INTERRUPTED
    assert saved(out / "1-short")[-1] == last_step(out / "1-short")
    assert not (out / "2-long").exists()


@pytest.mark.extended
@pytest.mark.process
@pytest.mark.parametrize("whom", [pytest.param("launcher", marks=pytest.mark.slow), "second rank"])
def test_ranks_stop_after_the_same_step_whichever_is_told(whom: str, recipe: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    finished(recipe, one, *SHORT, RARE)
    with subprocess.Popen(
        torchrun(recipe, two, *SHORT, RARE), stdout=-1, stderr=subprocess.STDOUT, text=True, env=ONE_THREAD
    ) as launcher:
        deadline = time.monotonic() + 900
        while record_count(two) < 2 and launcher.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        ranks = [
            each
            for each in descendants(launcher.pid)
            if b"\0RANK=1\0" in Path(f"/proc/{each}/environ").read_bytes()
            and b"whetstone" in Path(f"/proc/{each}/cmdline").read_bytes()
        ]
        os.kill(launcher.pid if whom == "launcher" else min(ranks), signal.SIGTERM)
        printed, _ = launcher.communicate(timeout=900)
        assert launcher.returncode != 0
    step = last_step(two)
    assert 1 <= step < 5, printed
    assert saved(two)[-1] == step, printed
    assert printed.count(f"stopped after step {step} of 5") == 1
    resumed = finished(recipe, two, *SHORT, RARE)
    assert "later records are repeated" not in resumed.stdout
    assert last_step(two) == 5


def told_twice(first: int, second: int) -> None:
    signal.raise_signal(first)
    signal.raise_signal(second)


@pytest.fixture
def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_request_is_taken_once_and_the_handlers_come_back(number: int, handlers: list[object]) -> None:
    stop = StopRequest(Ranks())
    with stop.listening():
        assert not stop.due()
        signal.raise_signal(number)
        assert stop.due()
    assert [signal.getsignal(each) for each in SIGNALS] == handlers


@pytest.mark.parametrize("numbers", [(a, b) for a in SIGNALS for b in SIGNALS])
def test_the_second_signal_interrupts_whatever_runs(numbers: tuple[int, int]) -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        with pytest.raises(KeyboardInterrupt), StopRequest(Ranks()).listening():
            told_twice(*numbers)
        assert [signal.getsignal(number) for number in SIGNALS] == [signal.SIG_DFL] * len(SIGNALS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        stop = StopRequest(Ranks())
        with stop.listening():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        assert not stop.due()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_role_drains_at_the_first_signal_and_its_blocked_loop_ends_at_the_second() -> None:
    drained: list[str] = []

    async def work() -> None:
        with drain_on_signal(lambda: drained.append("drained")):
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.01)
            assert drained == ["drained"]
            # A step that does not let the event loop run.
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError("the second signal came to nothing")

    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(work())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
