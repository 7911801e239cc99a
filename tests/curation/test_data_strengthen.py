"""``data strengthen`` with an endpoint over a real socket that writes generators of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.evaluate.scripted_server import Answer, Scripted, completion, fenced, serving
from whetstone.cli.main import main
from whetstone.core.problem import CallCase, CallTests, Problem, Program
from whetstone.data.dataset import open_problems
from whetstone.data.files import write_problems
from whetstone_curation.strengthen.evidence import evidence_of

pytestmark = pytest.mark.process

GOOD = "def generate(seed):\n    return [1000 + seed]\n"
INVALID = "def generate(seed):\n    return ['text', seed] if seed % 2 else 'no list'\n"
HOSTILE = (
    "import os\n\n\ndef generate(seed):\n    os.write(1, b'x' * 100_000)\n"
    "    if os.fork() == 0:\n        os._exit(3)\n    os._exit(0)\n"
)
STALLS = "def generate(seed):\n    while True:\n        pass\n"
# The limit is not a constant of the program, because inputs near constants are tried without a generator.
REFERENCE = "def steps(n):\n    return n * 2 if len(str(n)) < 4 else 0\n"


def named(name: str) -> Problem:
    cases = [CallCase(2 * n, [n]) for n in (1, 4, 9)]
    wrong = [Program("python", "def steps(n):\n    return n * 2\n")]
    return Problem(
        name,
        f"[{name}] Steps.",
        CallTests(cases, "steps"),
        references=[Program("python", REFERENCE)],
        wrong=wrong,
    )


@pytest.mark.extended
def test_inputs_of_generators_are_held_to_the_same_rules_as_others(tmp_path: Path) -> None:
    by = {"good": GOOD, "invalid": INVALID, "hostile": HOSTILE, "stalls": STALLS, "none": "x = 1\n"}
    asked: list[str] = []

    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        text = body["messages"][-1]["content"]
        name = next(name for name in by if f"[{name}]" in text)
        asked.append(name)
        return completion(fenced(by[name]))

    open_ = Problem("open", "Print any permutation.", CallTests([CallCase([1], [1])], "steps"))
    write_problems(tmp_path / "raw.jsonl", [*map(named, by), open_])
    out = tmp_path / "strong.jsonl"
    with serving(Scripted(answer)) as server:
        words = ["data", "strengthen", tmp_path / "raw.jsonl", "--out", out, "--endpoint", server.url]
        words += ["--workers", "1", "--inputs", "10", "--mutants", "2", "--tests", "4"]
        assert main([*map(str, words), "--patience", "0.3"]) == 0
    assert sorted(asked) == sorted(by)
    made = {problem.id: problem for problem in open_problems(out)}
    assert len(made) == 6
    written = {name: evidence for name in by if (evidence := evidence_of(made[name])) is not None}
    assert written["good"].written > 0
    assert written["good"].wrong == (1, 0, 1)
    assert [written[name].written for name in by if name != "good"] == [0, 0, 0, 0]
    assert all(written[name].wrong == (1, 0, 0) for name in by if name != "good")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "raw.jsonl",
        "strong.decisions.jsonl",
        "strong.jsonl",
    ]
