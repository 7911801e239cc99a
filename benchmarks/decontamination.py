"""What `whetstone data decontaminate` finds of planted copies, what it finds by mistake, and what it costs.

    .venv/bin/python benchmarks/decontamination.py planted --data FOLDER [--seeds 5] [--verbose]
    .venv/bin/python benchmarks/decontamination.py disjoint --data FOLDER [--verbose]

``FOLDER`` holds ``humaneval/HumanEval.jsonl.gz`` and ``mbpp_sanitized/sanitized-mbpp.json``. The copies are
those of ``planted_copies.py``. Disjoint are HumanEval and MBPP, and the problems that ship and the generated
micro-tasks and both: whatever is found there is printed, to be read.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from planted_copies import EACH, planted
from whetstone.core.problem import Problem
from whetstone.data.benchmark_index import BenchmarkIndex
from whetstone.data.builtin import shipped_problems
from whetstone.data.contamination import Contamination, ContaminationMatch, Thresholds, find_contamination
from whetstone.data.micro import micro_problems
from whetstone.evaluate.benchmarks import load_benchmark


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("planted", "disjoint"))
    parser.add_argument("--data", type=Path, required=True, help="the folder of HumanEval and MBPP")
    parser.add_argument("--seeds", type=int, default=5, help="sets of copies (default: 5)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--verbose", action="store_true", help="also the evidence for each copy, or near misses"
    )
    args = parser.parse_args()
    humaneval = load_benchmark("humaneval", str(args.data / "humaneval/HumanEval.jsonl.gz")).problems
    mbpp = load_benchmark("mbpp", str(args.data / "mbpp_sanitized/sanitized-mbpp.json")).problems
    if args.what == "planted":
        seeds = range(args.first_seed, args.first_seed + args.seeds)
        print_planted(humaneval, mbpp, seeds, verbose=args.verbose)
    else:
        print_disjoint(humaneval, mbpp, verbose=args.verbose)


def print_planted(
    humaneval: Sequence[Problem], mbpp: Sequence[Problem], seeds: Sequence[int], *, verbose: bool
) -> None:
    """A row for each kind and a column for each seed: how many of five are found."""
    found: dict[str, list[int]] = {}
    wrong = 0
    for column, seed in enumerate(seeds):
        copies = planted([*humaneval, *mbpp], seed)
        matches = _against([copy for _, _, copy in copies], {"humaneval": humaneval, "mbpp": mbpp})[0].found
        for kind, original, copy in copies:
            row = found.setdefault(kind, [0] * len(seeds))
            match = matches.get(copy.id)
            row[column] += match is not None
            wrong += match is not None and match.benchmark_id != original
            if verbose:
                said = "MISSED" if match is None else f"{match.where}, {match.rule}: {match.detail}"
                print(f"seed {seed}, {kind}, {original}: {said}")
    print(f"| of {EACH} each, seed | {' | '.join(map(str, seeds))} |")
    print(f"| --- | {' | '.join('---' for _ in seeds)} |")
    for kind, row in found.items():
        print(f"| {kind} | {' | '.join(map(str, row))} |")
    totals = [sum(row[column] for row in found.values()) for column in range(len(seeds))]
    print(f"| of {EACH * len(found)} | {' | '.join(map(str, totals))} |")
    print(f"found as a copy of another problem: {wrong}")


def print_disjoint(humaneval: Sequence[Problem], mbpp: Sequence[Problem], *, verbose: bool) -> None:
    """What is found where nothing should be, by rule and evidence; and the time it took."""
    both = {"humaneval": humaneval, "mbpp": mbpp}
    sets = {
        "HumanEval against MBPP": (humaneval, {"mbpp": mbpp}),
        "MBPP against HumanEval": (mbpp, {"humaneval": humaneval}),
        "problems that ship against both": (list(shipped_problems("builtin:all")), both),
        "micro-tasks against both": ([*micro_problems("train"), *micro_problems("heldout")], both),
    }
    for name, (problems, benchmarks) in sets.items():
        found, seconds = _against(problems, benchmarks)
        rules = dict(Counter(match.rule for match in found.found.values()))
        cost = f"{seconds / len(problems) * 1000:.1f} s of CPU for 1,000"
        print(f"{name}: {len(found.found)} of {len(problems)} found {rules or ''}; {cost}")
        for match in found.found.values():
            print(f"    {_said(match)}")
        for match in found.near_misses[:5] if verbose else ():
            print(f"    near: {_said(match)}")


def _against(
    problems: Sequence[Problem], benchmarks: dict[str, Sequence[Problem]]
) -> tuple[Contamination, float]:
    """What is found, and the CPU seconds of looking, without reading the benchmarks."""
    thresholds = Thresholds()
    index = BenchmarkIndex(thresholds.ngram)
    for name, held in benchmarks.items():
        index.add(name, held)
    start = time.process_time()
    found = find_contamination(lambda: problems, index, thresholds)
    return found, time.process_time() - start


def _said(match: ContaminationMatch) -> str:
    return f"{match.problem_id} is {match.where}, {match.rule}: {match.detail}"


if __name__ == "__main__":
    main()
