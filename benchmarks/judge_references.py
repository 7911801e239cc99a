"""The judge on HumanEval and sanitized MBPP: references, twice, on a busy machine; and all their mutants.

    .venv/bin/python benchmarks/judge_references.py SHARED_DATA_FOLDER

The folder holds ``humaneval/HumanEval.jsonl.gz`` and ``mbpp_sanitized/sanitized-mbpp.json``. One process
per core computes endlessly beside the judge. A mutant that the judge accepts is put to a plain run of
program and test in one interpreter: the two must agree that it is right.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from whetstone.core.problem import Limits, Problem
from whetstone.evaluate.benchmarks import load_benchmark
from whetstone.judge import Judge, Program
from whetstone_exam.load.busy import busy_processes

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "judge"))
from mutants import mutants, plainly_right

MUTANTS_EACH = 3


def problem_set(folder: Path) -> list[Problem]:
    """All 591 problems with their references."""
    humaneval = load_benchmark("humaneval", str(folder / "humaneval" / "HumanEval.jsonl.gz")).problems
    mbpp = load_benchmark("mbpp", str(folder / "mbpp_sanitized" / "sanitized-mbpp.json")).problems
    return [*humaneval, *mbpp]


def main() -> None:
    """Print what was accepted."""
    problems = problem_set(Path(sys.argv[1]))
    with busy_processes(os.cpu_count() or 1), Judge() as judge:
        for turn in (1, 2):
            start = time.perf_counter()
            judged = list(judge.judge_many((p, p.references[0]) for p in problems))
            refused = [
                (p.id, j.verdict.value, j.reason)
                for p, j in zip(problems, judged, strict=True)
                if not j.accepted
            ]
            shared = sum(j.shared_interpreter for j in judged)
            print(
                f"references, turn {turn}: {len(problems) - len(refused)} of {len(problems)} accepted in "
                f"{time.perf_counter() - start:.1f} s; shared interpreter {shared}; refused {refused}"
            )
        draw = random.Random(0)
        pairs = [
            (
                Problem(p.id, "", p.tests, references=p.references, limits=Limits(cpu_s=1.0)),
                Program("python", s),
            )
            for p in problems
            for s in mutants(p.references[0].source, MUTANTS_EACH, draw)
        ]
        start = time.perf_counter()
        verdicts = list(judge.judge_many(pairs))
        seconds = time.perf_counter() - start
    accepted = [pair for pair, j in zip(pairs, verdicts, strict=True) if j.accepted]
    forged = [p.id for p, program in accepted if not plainly_right(p, program.source)]
    print(
        f"mutants: {len(pairs)} judged in {seconds:.1f} s, "
        f"{dict(Counter(j.verdict.value for j in verdicts))}; "
        f"accepted {len(accepted)}, of which a plain run refutes {len(forged)}: {forged}"
    )


if __name__ == "__main__":
    main()
