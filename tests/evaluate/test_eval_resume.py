"""An evaluation that was killed goes on where it was, and ends with the result of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.evaluate.folder import read_samples
from whetstone.evaluate.results import load_evaluation

pytestmark = pytest.mark.process

_KILL_AFTER = 300  # samples: in the second of three waves
_SAMPLES = 3 * 256 - 64


def words(model: Path, out: Path) -> list[str]:
    # Without a prompt that asks for code there is hardly any, so that judging costs nothing here.
    text = (
        f"eval --benchmark problems --data micro:train --limit {_SAMPLES // 8} --n 8 --max-tokens 16 "
        f"--no-chat --stop q --threads 1 --workers 1 --model {model} --out {out}"
    )
    return text.split()


def test_killed_and_resumed_gives_the_same_replies_and_the_same_result(model: Path, tmp_path: Path) -> None:
    assert main(words(model, tmp_path / "whole")) == 0
    killed = tmp_path / "killed" / "problems"
    command = [sys.executable, "-m", "whetstone.cli.main", *words(model, tmp_path / "killed")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 240
        while _lines(killed / "samples.jsonl") < _KILL_AFTER:
            assert process.poll() is None, "the evaluation ended before it could be killed"
            assert time.monotonic() < deadline, "the evaluation did not get far enough to be killed"
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    there = _lines(killed / "samples.jsonl")
    assert there < _SAMPLES
    assert not (killed / "evaluation.json").exists()

    assert main(words(model, tmp_path / "killed")) == 0
    whole = tmp_path / "whole" / "problems"
    assert load_evaluation(killed) == load_evaluation(whole)
    replies = [
        [(s.problem_id, s.index, s.text, s.tokens, s.finish_reason, s.program) for s in read_samples(folder)]
        for folder in (whole, killed)
    ]
    assert len(replies[0]) == _SAMPLES
    assert replies[0] == replies[1]
    assert len({text for _, _, text, *_ in replies[0]}) > _SAMPLES / 2  # replies differ, so that order shows


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0
