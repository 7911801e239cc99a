"""What each language costs: a first judgement, one of something compiled before, and one more case.

Prints a Markdown table. ``first``: wall time until the verdict on a new program, compiled by then.
``again``: the same program once more, from the cache. ``case``: CPU time that one case of a sum takes,
the runtime's start included. Then C++ with 20 cases: cold, with the header prepared, and cached.

    python benchmarks/languages.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time

from whetstone.core.problem import StdinCase, StdinTests
from whetstone.judge import Judge, Judgement, Problem, Program
from whetstone.judge.languages.language import SUM_INPUT, SUM_OUTPUT
from whetstone.judge.languages.table import LANGUAGES
from whetstone.judge.languages.toolchains import runs_here

CASES = 20


def problem(cases: int) -> Problem:
    case = StdinCase(input=SUM_INPUT, output=SUM_OUTPUT)
    return Problem(id="sum", statement="", tests=StdinTests(cases=[case] * cases))


def judged(judge: Judge, language: str, blanks: int, cases: int = 1) -> tuple[float, Judgement]:
    """Wall seconds and the judgement of a sum, made another program by so many blanks at its end."""
    program = Program(language, LANGUAGES[language].probe_source + " " * blanks + "\n")
    began = time.perf_counter()
    judgement = judge.judge(problem(cases), program)
    wall = time.perf_counter() - began
    if not judgement.accepted:
        raise SystemExit(f"{language}: {judgement.verdict.value}: {judgement.reason}")
    return wall, judgement


def measure(judge: Judge, language: str, rounds: int) -> str:
    """One row: prepared before, so that ``first`` is what every new program costs."""
    judged(judge, language, 0)
    first, again, cpu = [], [], []
    for number in range(rounds):
        first.append(judged(judge, language, 1 + number)[0])
        wall, judgement = judged(judge, language, 1 + number, CASES)
        again.append(wall / CASES)
        cpu += [case.cpu_s for case in judgement.cases]
    figures = (statistics.median(first) * 1e3, statistics.median(again) * 1e3, statistics.median(cpu) * 1e3)
    return f"| {language} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |"


def cpp_with_many_cases(rounds: int) -> str:
    """C++ with 20 cases: with nothing prepared, with the header prepared, and compiled before."""
    cold, prepared, cached = [], [], []
    for number in range(rounds):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            with Judge(workers=1) as judge:
                cold.append(judged(judge, "cpp17", 100 + number, CASES)[0])
                prepared.append(judged(judge, "cpp17", 200 + number, CASES)[0])
                cached.append(judged(judge, "cpp17", 200 + number, CASES)[0])
    walls = [f"{statistics.median(walls) * 1e3:.0f}" for walls in (cold, prepared, cached)]
    return f"| cpp17, {CASES} cases | " + " | ".join(walls) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        with Judge(workers=1) as judge:
            print(f"Isolation: {judge.isolation}. Medians of {rounds} rounds.\n")
            print(
                "| language | first, wall ms | again, wall ms a case | case, CPU ms |\n"
                "| --- | --: | --: | --: |"
            )
            for language in LANGUAGES:
                if runs_here(language, judge.isolation):
                    print(measure(judge, language, rounds), flush=True)
    print("\n| program | nothing prepared, wall ms | header prepared | compiled before |")
    print("| --- | --: | --: | --: |")
    print(cpp_with_many_cases(max(rounds // 2, 1)))


if __name__ == "__main__":
    main()
