"""Right programs, judged again and again under load: every one is accepted, every time, on every tier.

    python benchmarks/judge_flips.py --data FOLDER [--rounds 10] [--busy 4]

The programs are the references of HumanEval and sanitized MBPP (``FOLDER`` holds ``humaneval/`` and
``mbpp_sanitized/``), those of the problems that ship, and the honest twins of the attack corpus. Each round
has workers of its own, so other process ids and other seeds on the side of the tests, and another number of
them. The rounds run on the strongest tier; one more runs on each of the others that start here. ``--busy``
processes for each core compute beside it all.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from whetstone.core.errors import SandboxUnavailable
from whetstone.core.problem import Problem, Program
from whetstone.data.builtin import shipped_problems
from whetstone.evaluate.benchmarks import load_benchmark
from whetstone.judge import Judge, Judgement
from whetstone.sandbox import Tier
from whetstone.testing.attacks.corpus import load_corpus
from whetstone.testing.attacks.suite import AttackTrial, corpus_trials, run_trials
from whetstone_exam.load.busy import busy_processes

WORKERS = (1, 2, 4, 8)
Verdicts = dict[str, str]


def main() -> None:
    """Judge, and say what was refused and what differed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of HumanEval and MBPP")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--busy", type=int, default=4, help="busy processes for each core")
    args = parser.parse_args()
    pairs = [*(benchmark_pairs(args.data) if args.data else []), *shipped_pairs()]
    twins = [trial for trial in corpus_trials(load_corpus()) if trial.role != "attack"]
    print(f"{len(pairs)} references and {len(twins)} twins and references of the corpus")
    rounds: list[Verdicts] = []
    with busy_processes(args.busy * len(os.sched_getaffinity(0))):
        for number in range(args.rounds):
            rounds.append(one_round(pairs, twins, WORKERS[number % len(WORKERS)], None))
        for tier in weaker_tiers():
            one_round(pairs, twins, WORKERS[-1], tier)
    seen: dict[str, set[str]] = defaultdict(set)
    for verdicts in rounds:
        for name, verdict in verdicts.items():
            seen[name].add(verdict)
    flips = {name: sorted(found) for name, found in seen.items() if len(found) > 1}
    print(f"flips in {args.rounds} rounds: {len(flips)} of {len(seen)} programs {flips or ''}")


def benchmark_pairs(folder: Path) -> list[tuple[Problem, Program]]:
    """The public references with their problems."""
    files = {"humaneval": "humaneval/HumanEval.jsonl.gz", "mbpp": "mbpp_sanitized/sanitized-mbpp.json"}
    problems = [p for name, path in files.items() for p in load_benchmark(name, str(folder / path)).problems]
    return [(problem, problem.references[0]) for problem in problems]


def shipped_pairs() -> list[tuple[Problem, Program]]:
    """Every reference of the sets that ship."""
    return [(p, r) for p in shipped_problems("builtin:all") for r in p.references]


def weaker_tiers() -> list[str]:
    """The tiers that start here, but for the strongest."""
    found: list[str] = []
    for tier in Tier:
        try:
            Judge(1, tier=tier.label).close()
        except SandboxUnavailable as refused:
            print(f"tier {tier.label} does not start here: {refused}")
            continue
        found.append(tier.label)
    return found[:-1]


def one_round(
    pairs: Sequence[tuple[Problem, Program]], twins: Sequence[AttackTrial], workers: int, tier: str | None
) -> Verdicts:
    """All programs once, by name; what is not accepted is printed."""
    began = time.monotonic()
    verdicts: Verdicts = {}
    with Judge(workers, tier=tier) as judge:
        isolation = judge.isolation
        for number, ((problem, _), judged) in enumerate(zip(pairs, judge.judge_many(pairs), strict=True)):
            verdicts[f"{problem.id} #{number}"] = _verdict(judged)
    for outcome in run_trials(twins, tier=tier, workers=workers):
        trial = outcome.trial
        known = "known: " if outcome.known else ""
        verdicts[f"{trial.class_name}/{trial.name} ({trial.role})"] = known + _verdict(outcome.judgement)
    refused = {name: said for name, said in verdicts.items() if said != "accepted"}
    print(
        f"{isolation}, {workers} workers: {len(verdicts) - len(refused)} of {len(verdicts)} accepted "
        f"in {time.monotonic() - began:.0f} s; not accepted: {refused or 'none'}",
        flush=True,
    )
    return verdicts


def _verdict(judgement: Judgement) -> str:
    if judgement.accepted:
        return "accepted" if not judgement.shared_interpreter else "accepted, shared interpreter"
    return f"{judgement.verdict.value}: {judgement.reason[:120]}"


if __name__ == "__main__":
    main()
