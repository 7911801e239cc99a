"""``whetstone eval`` as a person uses it: a real model, the real judge, files, and clear refusals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.evaluate.scripted_server import Answer, Scripted, completion, fenced, serving
from whetstone.cli.main import main
from whetstone.evaluate.benchmarks import BENCHMARKS
from whetstone.evaluate.folder import read_samples
from whetstone.evaluate.results import load_evaluation

pytestmark = pytest.mark.process


def arguments(model: Path, out: Path, seed: int = 1) -> list[str]:
    text = (
        "eval --benchmark problems --data builtin:heldout --limit 3 --n 2 --k 1,2 --max-tokens 12 --no-chat"
    )
    return [
        *text.split(),
        *("--prefix", r"def f(xs):\n    return ", "--extraction", "whole", "--dtype", "float32"),
        *("--threads", "1", "--workers", "1", "--seed", str(seed), "--model", str(model), "--out", str(out)),
    ]


def test_measures_saves_repeats_and_compares(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(model, tmp_path / "a")) == 0
    assert "pass@1 (avg@2)" in capsys.readouterr().out
    assert main(arguments(model, tmp_path / "b")) == 0
    assert (tmp_path / "a" / "problems" / "samples.jsonl").read_text().count("\n") == 6
    folders = [tmp_path / name / "problems" for name in "ab"]
    texts = [[sample.text for sample in read_samples(folder)] for folder in folders]
    assert texts[0] == texts[1]
    first, second = (load_evaluation(folder) for folder in folders)
    assert first.manifest["benchmark"]["problems"] == 3
    assert first.manifest["environment"]["prefix"] == "def f(xs):\n    return "
    assert first.manifest["judge"]["isolation"] in {"root", "userns", "restricted"}
    assert first.manifest["harness"] == "ours"
    assert first == second
    capsys.readouterr()
    assert main(["eval", "compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "3 problems in both" in out
    assert "not measured in the same way" not in out


@pytest.mark.extended
def test_a_full_disk_keeps_judged_replies_and_the_same_command_resumes(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "whetstone", *arguments(model, tmp_path / "a")]
    # No file may become longer than 2 KiB: like a full disk, and no right is needed.
    full = subprocess.run(["bash", "-c", 'ulimit -f 2; exec "$@"', "bash", *command], capture_output=True)
    assert full.returncode == 2, full.stderr
    assert b"free some space and run the same command again" in full.stderr
    assert b"Loading weights" not in full.stderr  # a bar is for a terminal
    begun = list(read_samples(tmp_path / "a" / "problems"))
    assert main(arguments(model, tmp_path / "a")) == 0
    whole = list(read_samples(tmp_path / "a" / "problems"))
    assert 0 < len(begun) < len(whole) == 6
    assert [sample for sample in whole if sample in begun] == begun


def test_several_benchmarks_in_one_run_have_a_folder_each_and_are_compared_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {
            "task_id": f"HumanEval/{number}",
            "prompt": f"def f(x):\n    'x plus {number}'\n",
            "entry_point": "f",
            "canonical_solution": f"    return x + {number}\n",
            "test": f"def check(candidate):\n    assert candidate(1) == {1 + number}\n",
        }
        for number in (0, 1)
    ]
    data = tmp_path / "HumanEval.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    program = ""

    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        return completion(fenced(program))

    with serving(Scripted(answer)) as server:
        words = f"eval --endpoint {server.url} --benchmark humaneval,problems --data humaneval={data} --n 1"
        more = ["--data", "problems=builtin:heldout", "--limit", "2", "--workers", "1", "--out"]
        for number, out in (0, "a"), (1, "b"):
            program = f"def f(x):\n    return x + {number}"
            assert main([*words.split(), *more, str(tmp_path / out)]) == 0
    capsys.readouterr()
    assert main(["eval", "compare", str(tmp_path / "a"), str(tmp_path / "b"), "--list"]) == 0
    said = capsys.readouterr().out
    changes = [line for line in said.splitlines() if line.startswith(("gained", "lost"))]
    assert len(changes) == 2
    assert re.fullmatch(r"gained  \S*/1  0 of 1, then 1 of 1", changes[0])
    assert re.fullmatch(r"lost  \S*/0  1 of 1, then 0 of 1", changes[1])
    assert said.count("2 problems in both") == 2
    shown = load_evaluation(tmp_path / "a" / "humaneval").manifest
    assert shown["model"]["endpoint"] == f"{server.url}/v1"


def test_problems_that_only_an_environment_can_judge_are_refused_before_the_folder_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text(json.dumps({"id": "m", "statement": "How long?", "tests": {"kind": "none"}}))
    with serving(Scripted(lambda path, body, before: completion(fenced("print(2)")))) as server:
        words = f"eval --endpoint {server.url} --benchmark problems --data {problems} --n 1 --workers 1"
        assert main([*words.split(), "--out", str(tmp_path / "out")]) == 2
    assert "`environment.kind` of a recipe" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_every_benchmark_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "--benchmarks"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in BENCHMARKS)


def test_another_manifest_in_the_folder_is_named_and_restart_drops_it(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(model, tmp_path)) == 0
    before = (tmp_path / "problems" / "samples.jsonl").read_bytes()
    assert main(arguments(model, tmp_path, seed=2)) == 2
    said = capsys.readouterr().err
    assert "sampling.seed (1 and 2)" in said
    assert "--restart" in said
    assert (tmp_path / "problems" / "samples.jsonl").read_bytes() == before
    assert main([*arguments(model, tmp_path, seed=2), "--restart"]) == 0
    assert load_evaluation(tmp_path / "problems").plan.seed == 2
    assert main([*arguments(model, tmp_path, seed=2), "--k", "1"]) == 0  # counts what is there anew
    assert list(load_evaluation(tmp_path / "problems").pass_at) == [1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "--model is missing"),
        ("--model m", "--benchmark is missing"),
        ("--model m --benchmark mbbp --data x", "did you mean `mbpp`"),
        ("--model m --benchmark problems", "needs --data"),
        ("--model m --benchmark humaneval --data absent.jsonl", "absent.jsonl: no such file"),
        ("--model m --benchmark problems --data builtin:heldout --n 4 --k 8", "pass@8 needs n >= 8"),
        ("--model m --benchmark humaneval,mbpp --data x.json", "there are several benchmarks; name one"),
        ("--model m --benchmark problems --data builtin:heldout --patience 3", "are for --endpoint"),
        ("--endpoint http://127.0.0.1:9 --benchmark problems --data builtin:heldout", "cannot be reached"),
        ("--endpoint localhost:9 --benchmark problems --data builtin:heldout", "expected an address such as"),
        (
            "--endpoint http://127.0.0.1:9 --dtype float32 --benchmark problems --data builtin:heldout",
            "the server decides",
        ),
        ("--model m --benchmark problems --data builtin:heldout --limit -1", "--limit"),
        (
            "--model m --benchmark problems --data builtin:heldout --max-prompt-tokens 0",
            "--max-prompt-tokens",
        ),
        ("--model ./absent --benchmark problems --data builtin:heldout", "absent: no such file or folder"),
        ("compare absent other", "absent: no such folder"),
    ],
)
def test_bad_input_ends_with_status_2_and_the_way_out(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *words.split()]) == 2
    assert message in capsys.readouterr().err
