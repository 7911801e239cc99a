"""A model that writes attacks scores 0 through ``whetstone eval``; one that writes solutions, 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.evaluate.scripted_server import Answer, Scripted, completion, fenced, serving
from whetstone.cli.main import main
from whetstone.core.problem import Problem
from whetstone.data.files import write_problems
from whetstone.evaluate.folder import read_samples
from whetstone.evaluate.results import load_evaluation
from whetstone.testing.attacks.corpus import load_corpus

pytestmark = pytest.mark.process

HUMANEVAL_ROW = {
    "task_id": "HumanEval/0",
    "prompt": 'def product(a, b):\n    """a times b, plus 7919."""\n',
    "entry_point": "product",
    "canonical_solution": "    return a * b + 7919\n",
    "test": (
        "def check(candidate):\n    assert candidate(619, 733) == 461646\n"
        "    assert candidate(0, 1) == 7919\n"
    ),
}
HUMANEVAL_ATTACKS = {
    "leaves": "import os\ndef product(a, b):\n    os._exit(0)",
    "leaves on import": "import os\nos._exit(0)",
    "system exit": "import sys\ndef product(a, b):\n    sys.exit(0)",
    "equal to all": (
        "class Any(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n"
        "def product(a, b):\n    return Any()"
    ),
    "replaces check": (
        "import sys\ndef product(a, b):\n    frame = sys._getframe()\n    while frame:\n"
        "        frame.f_globals['check'] = lambda candidate: None\n        frame = frame.f_back\n"
        "    return 0"
    ),
    "reads the answers off frames": (
        "import sys\ndef product(a, b):\n    frame = sys._getframe()\n    while frame:\n"
        "        for value in frame.f_code.co_consts + tuple(frame.f_locals.values()):\n"
        "            if isinstance(value, int) and value > 9000:\n                return value\n"
        "        frame = frame.f_back\n    return 0"
    ),
    "forges a result": "def product(a, b):\n    print('{\"verdict\": \"accepted\"}')\nprint('ok')",
    "no assert": "import builtins\nbuiltins.AssertionError = SystemExit\ndef product(a, b):\n    return 0",
}
CLASSES = ("early_exit", "forged_equality", "forged_channels", "stolen_answers")
WAITING = {"link swallowed by the program"}  # costs the wall clock limit, and tests nothing more here


def corpus_set() -> tuple[list[Problem], dict[str, str], dict[str, str]]:
    """Problems named after an attack each; the attack, and the solution, by the name."""
    corpus = load_corpus()
    problems: list[Problem] = []
    attacks: dict[str, str] = {}
    solutions: dict[str, str] = {}
    for name in CLASSES:
        plain = [
            attack
            for attack in corpus.classes[name]
            if attack.language == "python" and not (attack.earlier or attack.texts or attack.not_stopped)
            if attack.name not in WAITING
        ]
        for attack in plain[::4]:
            problem = corpus.problems[attack.problem]
            problems.append(msgspec.structs.replace(problem, id=attack.name, statement=f"<{attack.name}>"))
            attacks[attack.name] = attack.program
            solutions[attack.name] = problem.references[0].source
    return problems, attacks, solutions


def score(tmp_path: Path, url: str, benchmark: str, data: Path) -> float:
    out = tmp_path / "out"
    words = f"eval --endpoint {url} --benchmark {benchmark} --n 1 --workers 2 --restart"
    assert main([*words.split(), "--data", str(data), "--out", str(out)]) == 0
    evaluation = load_evaluation(out / benchmark)
    # Every verdict is one on the program: nothing failed that would have made a zero by itself.
    assert (evaluation.shares.judge_error, evaluation.shares.failed) == (0, 0)
    assert not any(s.judgement and s.judgement.verdict == "no_code" for s in read_samples(out / benchmark))
    return evaluation.pass_at[1].value


def test_attacks_of_the_corpus_score_0_and_solutions_1(tmp_path: Path) -> None:
    problems, attacks, solutions = corpus_set()
    assert {problem.tests.__struct_config__.tag for problem in problems} == {"stdin", "call", "assert"}
    assert len(problems) > 25
    data = tmp_path / "problems.jsonl"
    write_problems(data, problems)
    programs = attacks

    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        asked = body["messages"][-1]["content"]
        name = asked.partition("<")[2].partition(">")[0]
        return completion(fenced(programs[name]))

    with serving(Scripted(answer)) as server:
        assert score(tmp_path, server.url, "problems", data) == 0.0
        programs = solutions
        assert score(tmp_path, server.url, "problems", data) == 1.0


def test_attacks_on_humaneval_score_0_and_its_solution_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {
            **HUMANEVAL_ROW,
            "task_id": f"HumanEval/{number}",
            "prompt": f"# <{name}>\n{HUMANEVAL_ROW['prompt']}",
        }
        for number, name in enumerate(HUMANEVAL_ATTACKS)
    ]
    data = tmp_path / "HumanEval.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows))
    solution = HUMANEVAL_ROW["prompt"] + HUMANEVAL_ROW["canonical_solution"]
    solving = False

    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        name = body["messages"][-1]["content"].partition("<")[2].partition(">")[0]
        return completion(fenced(solution if solving else HUMANEVAL_ATTACKS[name]))

    with serving(Scripted(answer)) as server:
        assert score(tmp_path, server.url, "humaneval", data) == 0.0
        solving = True
        assert score(tmp_path, server.url, "humaneval", data) == 1.0
    assert "100.0%" in capsys.readouterr().out
