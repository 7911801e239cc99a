"""EvalPlus' own grader beside our `official` mode, over the same programs. See official.md.

    python benchmarks/official_evalplus.py --python VENV/bin/python --humaneval HumanEvalPlus.jsonl \\
        --mbpp MbppPlus.jsonl

VENV has ``evalplus`` from PyPI. Its ``untrusted_check`` decides on each program, with expected values that
its ``trusted_exec`` computes from its own reading of the files; ours come from our reading of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from official_compare import Trial, ours, report, theirs
from official_evalplus_programs import ATTACKS, WRAPPERS
from whetstone.core.problem import Problem
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import import_rows
from whetstone.data.sources.table import source_named
from whetstone.data.validate.mutants import mutants
from whetstone_graders.calling import Caller
from whetstone_graders.evalplus import EvalPlusTask, official_form, task_of

_THEIR_RUN = """
import json, os, sys
os.environ["HUMANEVAL_OVERRIDE_PATH"], os.environ["MBPP_OVERRIDE_PATH"], most = sys.argv[1:]
most = int(most) or None
orders = [json.loads(line) for line in sys.stdin]
out = os.fdopen(os.dup(1), "w")
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 1)
os.dup2(null, 0)
sys.stdin = open(os.devnull)
from evalplus.data import get_human_eval_plus, get_mbpp_plus
from evalplus.eval import untrusted_check
from evalplus.eval._special_oracle import MBPP_OUTPUT_NOT_NONE_TASKS
from evalplus.gen.util import trusted_exec
sets = {"humaneval": get_human_eval_plus(), "mbpp": get_mbpp_plus(err_incomplete=False)}
known = {}
for order in orders:
    name, number = order["dataset"], order["task_id"]
    task = sets[name][number]
    if (name, number) not in known:
        known.clear()
        not_none = name == "mbpp" and task["entry_point"] in MBPP_OUTPUT_NOT_NONE_TASKS
        parts = [list(task["base_input"] or []), list(task["plus_input"] or [])[:most]]
        source = task["prompt"] + task["canonical_solution"]
        known[name, number] = [
            (part, *trusted_exec(source, part, task["entry_point"], True, not_none)) for part in parts if part
        ]
    said, notes = [], []
    for inputs, expected, times in known[name, number]:
        entry, atol = task["entry_point"], task["atol"]
        stat, details = untrusted_check(name, order["code"], inputs, entry, expected, atol, times, True, 4.0)
        said.append((stat, details))
        notes.append(f"{stat} after {len(details)} of {len(inputs)}")
    shown = ", ".join(notes)
    print(json.dumps([all(stat == "pass" for stat, _ in said), shown]), file=out, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", type=Path, required=True, help="the Python that has evalplus")
    parser.add_argument("--humaneval", type=Path, required=True)
    parser.add_argument("--mbpp", type=Path, required=True)
    parser.add_argument("--inputs", type=int, default=0, help="plus inputs of each task (default: all)")
    parser.add_argument("--mutants", type=int, default=2, help="of each reference (default: 2)")
    parser.add_argument("--odd", type=int, default=2, help="odd answers for each task (default: 2)")
    parser.add_argument("--every", type=int, default=1, help="only every so many tasks")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with Caller() as caller:
        made = list(_programs(args, caller))
    trials, orders = [trial for trial, _ in made], [order for _, order in made]
    files = [str(args.humaneval), str(args.mbpp), str(args.inputs)]
    their = theirs(args.python, _THEIR_RUN, files, orders)
    report(trials, list(ours(trials, args.workers)), their)


def _programs(args: argparse.Namespace, caller: Caller) -> Iterator[tuple[Trial, dict[str, Any]]]:
    problems = _problems(args)
    for number, (problem, task) in enumerate(problems):
        form = official_form(problem, task, caller)
        made: list[tuple[str, str, str]] = [("reference", "", task.reference)]
        made += [("mutant", m.change, m.source) for m in mutants(task.reference, args.mutants, problem.id)]
        names = list(WRAPPERS)
        for name in [names[(number * args.odd + i) % len(names)] for i in range(args.odd)]:
            made.append(("odd answer", name, WRAPPERS[name](task.reference, task.entry_point)))
        if args.odd and number % 25 == 0:
            attacks = list(ATTACKS.items())
            name, attack = attacks[number // 25 % len(attacks)]
            made.append(("attack", name, attack(task.reference, task.entry_point)))
        for kind, what, code in made:
            order = {"dataset": task.dataset, "task_id": str(problem.meta["task_id"]), "code": code}
            yield Trial(f"{problem.id} {what}", kind, code, form), order


def _problems(args: argparse.Namespace) -> list[tuple[Problem, EvalPlusTask]]:
    found: list[tuple[Problem, EvalPlusTask]] = []
    for source, path in (("humanevalplus", args.humaneval), ("mbppplus", args.mbpp)):
        for problem in import_rows(source_named(source), read_rows([path])):
            if not isinstance(problem, Problem):
                continue
            task = task_of(problem)
            assert task is not None
            plus = task.plus[: args.inputs or None]
            found.append((problem, replace(task, plus=plus)))
    return found[:: args.every]


if __name__ == "__main__":
    main()
