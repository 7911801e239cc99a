"""Labelled programs for ``whetstone data audit``: replies of models judged by EvalPlus, and mutants.

    benchmarks/audits.py label humaneval --file HumanEval.jsonl.gz --plus HumanEvalPlus.jsonl.gz \\
        --replies DIR --set humaneval.jsonl --labelled replies.jsonl
    benchmarks/audits.py mutants builtin:all --each 20 --hurried shipped.jsonl --labelled mutants.jsonl
    whetstone data audit SET --programs LABELLED --report audit.json
    benchmarks/audits.py show audit.json ...

``label`` writes the problems of a benchmark as a set, and every reply with the judgement of EvalPlus' tests.
``mutants`` changes the references of a set with the operators of cosmic-ray, which must be installed, and
copies the set with a limit of one CPU second.
``show`` prints the audits as tables in Markdown.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from strengthen import REFUSED, joined_reply, replies_in, run_program
from whetstone.core.problem import Problem
from whetstone.data.dataset import open_problems
from whetstone.data.validate.runs import Runs, is_python
from whetstone.evaluate.benchmarks import load_benchmark
from whetstone.judge import Judge

# EvalPlus' tests of a few problems need minutes for each reply.
_MOST_PLUS_S = 1.0
# CPU seconds of a mutant: many are endless loops.
_MUTANT_S = 1.0


def main() -> None:
    """Run one action of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    label = actions.add_parser("label")
    label.add_argument("benchmark", choices=("humaneval", "mbpp"))
    for name in ("file", "plus", "set", "labelled"):
        label.add_argument(f"--{name}", required=True, type=Path)
    label.add_argument("--replies", action="append", required=True, type=Path)
    label.add_argument("--workers", type=int, default=2)
    mutants = actions.add_parser("mutants")
    mutants.add_argument("set")
    mutants.add_argument("--hurried", required=True, type=Path, help="write the set with short limits")
    mutants.add_argument("--each", type=int, default=20, help="mutants of a problem, at most")
    mutants.add_argument("--labelled", required=True, type=Path)
    show = actions.add_parser("show")
    show.add_argument("reports", nargs="+", type=Path)
    args = parser.parse_args()
    {"label": _label, "mutants": _mutants, "show": _show}[args.action](args)


def _label(args: argparse.Namespace) -> None:
    problems = load_benchmark(args.benchmark, str(args.file)).problems
    harder = {
        p.id.rpartition("/")[2]: p for p in load_benchmark(f"{args.benchmark}plus", str(args.plus)).problems
    }
    args.set.write_bytes(b"".join(msgspec.json.encode(problem) + b"\n" for problem in problems))
    replies = replies_in(args.replies)
    with (
        Judge(args.workers) as judge,
        ThreadPoolExecutor(2 * args.workers) as pool,
        args.labelled.open("w") as sink,
    ):
        runs = Runs(judge, 3)

        def rows(problem: Problem) -> list[dict[str, Any]]:
            number = problem.id.rpartition("/")[2]
            plus = harder.get(number)
            return list(_labelled(problem, plus, replies.get(number, []), runs)) if plus else []

        for done, found in enumerate(pool.map(rows, problems), 1):
            sink.writelines(json.dumps(row) + "\n" for row in found)
            print(f"{done} of {len(problems)}", flush=True)


def _labelled(
    problem: Problem, plus: Problem, replies: list[tuple[str, str]], runs: Runs
) -> Iterator[dict[str, Any]]:
    """Each different reply, with whether EvalPlus' tests accept it. Time limits label nothing."""
    reference = run_program(runs, plus, plus.references[0].source)
    cpu_s = sum(case.cpu_s for case in reference.cases)
    if cpu_s > _MOST_PLUS_S:
        return
    for source in dict.fromkeys(joined_reply(problem, text) for _, text in replies):
        judged = run_program(runs, plus, source, max(1.0, 4 * cpu_s))
        if judged.accepted or judged.verdict in REFUSED:
            yield {"problem_id": problem.id, "source": source, "correct": judged.accepted}


def _mutants(args: argparse.Namespace) -> None:
    mutating, plugins = import_module("cosmic_ray.mutating"), import_module("cosmic_ray.plugins")
    operators = [plugins.get_operator(name) for name in sorted(plugins.operator_names())]
    written = problems = 0
    with args.labelled.open("w") as sink, args.hurried.open("wb") as copy:
        for problem in open_problems(args.set):
            limits = msgspec.structs.replace(problem.limits, cpu_s=_MUTANT_S)
            copy.write(msgspec.json.encode(msgspec.structs.replace(problem, limits=limits)) + b"\n")
            reference = next((program for program in problem.references if is_python(program)), None)
            if reference is None:
                continue
            problems += 1
            found = _of_operators(reference.source, args.each, problem.id, operators, mutating)
            written += len(found)
            rows = [{"problem_id": problem.id, "source": each, "correct": False} for each in found]
            sink.writelines(json.dumps(row) + "\n" for row in rows)
    print(f"{written} mutants of {problems} problems")


def _of_operators(source: str, most: int, seed: str, operators: list[Any], mutating: Any) -> list[str]:
    """Return up to ``most`` mutants, each by another operator while there are enough."""
    draw = random.Random(seed)
    order = draw.sample(operators, len(operators))
    found = dict[str, None]()
    for occurrence in range(3):
        for operator in order:
            if len(found) >= most:
                return list(found)
            try:
                changed = mutating.mutate_code(source, operator(), occurrence)
            except TypeError:
                continue  # an operator that needs arguments
            if changed is not None and changed != source:
                found[changed] = None
    return list(found)


def _show(args: argparse.Namespace) -> None:
    print("| set | rate | problems | programs | misjudged | rate, 95% interval |")
    print("| --- | --- | --- | --- | --- | --- |")
    for path in args.reports:
        audit = json.loads(path.read_text())
        for rate in audit["rates"]:
            if rate["problems"]:
                interval = f"{rate['rate']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})"
                counts = f"{rate['problems']} | {rate['programs']} | {rate['misjudged']}"
                print(f"| {path.stem} | {rate['name']} | {counts} | {interval} |")
    for path in args.reports:
        weakest = json.loads(path.read_text())["weakest"]
        print(f"\n{path.stem}, the weakest problems: {', '.join(each['problem_id'] for each in weakest)}.")


if __name__ == "__main__":
    main()
