"""What contestants are given: programs with tests, as plain data that any interpreter can read.

A task is a dict: ``source``; ``cases``, pairs of input and expected output, for a program that reads standard
input; or ``script``, program and tests in one file that ends with exit code 0 when all hold; and ``problem``,
the same in the published schema.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from speed.small_programs import PROGRAMS
from whetstone.core.problem import AssertTests, Problem
from whetstone.evaluate.benchmarks import load_benchmark

Task = dict[str, Any]
_LIMITS = {"cpu_s": 5.0, "memory_mb": 512.0, "output_mb": 4.0}


def small_tasks(count: int, copies: int) -> dict[str, list[Task]]:
    """Each of the small programs with ``count`` cases, ``copies`` times with other inputs, by name.

    A plain interpreter says what is expected.
    """
    return {name: [_small_task(name, count, copy) for copy in range(copies)] for name in PROGRAMS}


def _small_task(name: str, count: int, copy: int) -> Task:
    source, draw_input = PROGRAMS[name]
    draw = random.Random(f"{name} {count} {copy}")
    inputs = [draw_input(draw) for _ in range(count)]
    cases = [(given, _plain_output(source, given)) for given in inputs]
    tests = {"kind": "stdin", "cases": [{"input": given, "output": wanted} for given, wanted in cases]}
    problem = {"id": name, "statement": "", "tests": tests, "limits": _LIMITS}
    return {"source": source, "cases": cases, "problem": problem}


def _plain_output(source: str, given: str) -> str:
    command = [sys.executable, "-I", "-S", "-c", source]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout


def public_tasks(folder: Path, blocks: int) -> list[list[Task]]:
    """References of HumanEval and sanitized MBPP with their tests, dealt into ``blocks`` alike."""
    humaneval = load_benchmark("humaneval", str(folder / "humaneval" / "HumanEval.jsonl.gz")).problems
    mbpp = load_benchmark("mbpp", str(folder / "mbpp_sanitized" / "sanitized-mbpp.json")).problems
    tasks = [_assert_task(problem) for problem in (*humaneval, *mbpp)]
    return [tasks[number::blocks] for number in range(blocks)]


def _assert_task(problem: Problem) -> Task:
    """``tests`` defines ``check``, and ``check(entry_point)`` passes when all holds."""
    assert isinstance(problem.tests, AssertTests)
    given, source = problem.tests, problem.references[0].source
    tests, entry_point = f"{given.setup}\n{given.check}", given.entry_point
    if given.asserts:
        tests, entry_point = "\n".join([given.setup, *given.asserts, "def check(_): pass"]), "None"
    # The problem keeps its reference: without it the judge cannot know which helpers the tests mean.
    return {
        "source": source,
        "tests": tests,
        "entry_point": entry_point,
        "script": f"{source}\n{tests}\ncheck({entry_point})\n",
        "problem": msgspec.to_builtins(problem),
    }
