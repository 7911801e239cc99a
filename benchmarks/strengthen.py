"""Strengthens HumanEval and sanitized MBPP from their own references, and holds the result against EvalPlus.

    benchmarks/strengthen.py measure --out rows.jsonl --humaneval HumanEval.jsonl.gz \\
        --humaneval-plus HumanEvalPlus.jsonl.gz --mbpp sanitized-mbpp.json --mbpp-plus MbppPlus.jsonl.gz \\
        --replies humaneval=DIR --replies mbpp=DIR
    benchmarks/strengthen.py show rows.jsonl

EvalPlus' files are those of its releases (humanevalplus_release v0.1.10, mbppplus_release v0.2.0). A folder
of replies has a Python file for each, whose path ends in the task's number (``HumanEval_12/0.py``,
``12.py``). A row is written for each problem; the same command goes on after the rows that are there.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import msgspec

from other_mutants import other_mutants
from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Problem, Program
from whetstone.core.syntax import parse, parsed
from whetstone.data.validate.mutants import mutants
from whetstone.data.validate.runs import Runs
from whetstone.evaluate.benchmarks import load_benchmark
from whetstone.judge import Judge, Judgement, Verdict
from whetstone_curation.audit.labelled_programs import GivenPrograms
from whetstone_curation.strengthen.answers import Answers
from whetstone_curation.strengthen.forms import UnreadableTests, read_tests, with_added
from whetstone_curation.strengthen.strengthener import Effort, Strengthener

REFUSED = (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)
"""What counts as refused: a clock decides nothing here."""
_NUMBER = re.compile(r"(?:^|[/_])(\d+)(?:/\d+)?\.py$")
# EvalPlus' tests of a few problems need minutes. Problems whose reference needs more CPU time are left out.
_MOST_PLUS_S = 1.0
_FEWEST_VOTERS = 4
MODES = ("alone", "samples")
_REPLIES = ("reply",)
_MUTANTS = ("mutant", "other mutant")
# Rows of the table: their title, the label by EvalPlus, and the kinds of programs.
_GROUPS = (
    ("wrong: replies", "wrong", _REPLIES),
    ("wrong: mutants of our operators, another seed", "wrong", ("mutant",)),
    ("wrong: mutants of other operators", "wrong", ("other mutant",)),
    ("wrong: all", "wrong", (*_REPLIES, *_MUTANTS)),
    ("right: replies and EvalPlus' references", "right", (*_REPLIES, "right of EvalPlus")),
)
# CPU seconds of EvalPlus' tests for the replies to a problem, which limit how many are judged.
_REPLIES_S = 4.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    measure = actions.add_parser("measure")
    for name in ("humaneval", "humaneval-plus", "mbpp", "mbpp-plus"):
        measure.add_argument(f"--{name}", metavar="FILE")
    measure.add_argument("--replies", action="append", default=[], metavar="BENCHMARK=DIR")
    measure.add_argument("--out", required=True, type=Path)
    measure.add_argument("--problems", type=int, help="a sample of so many")
    measure.add_argument("--seed", type=int, default=0, help="of the order, and so of the sample")
    measure.add_argument("--mutants", type=int, default=60, help="of each kind, for each problem")
    measure.add_argument("--most", type=int, default=8, help="survivors of each kind held against EvalPlus")
    measure.add_argument("--part", default="0/1", metavar="K/N", help="every N-th problem, from K on")
    measure.add_argument("--workers", type=int, default=2)
    show = actions.add_parser("show")
    show.add_argument("rows", type=Path, nargs="+")
    args = parser.parse_args()
    if args.action == "show":
        _show([json.loads(line) for path in args.rows for line in path.read_text().splitlines()])
    else:
        _measure_all(args)


def _pairs(args: argparse.Namespace) -> Iterator[tuple[Problem, Problem, list[tuple[str, str]]]]:
    """Problems of a benchmark and of its plus set, and replies to them with their places."""
    for name in ("humaneval", "mbpp"):
        base, plus = getattr(args, name), getattr(args, f"{name}_plus")
        if not base or not plus:
            continue
        folders = (word.partition("=")[2] for word in args.replies if word.startswith(f"{name}="))
        replies = replies_in(map(Path, folders))
        harder = {p.id.rpartition("/")[2]: p for p in load_benchmark(f"{name}plus", plus).problems}
        problems = [p for p in load_benchmark(name, base).problems if p.id.rpartition("/")[2] in harder]
        for problem in problems:
            number = problem.id.rpartition("/")[2]
            yield problem, harder[number], replies.get(number, [])


def replies_in(folders: Iterable[Path]) -> dict[str, list[tuple[str, str]]]:
    """The replies of folders by the number of their problem, each with the folder that it lies in."""
    replies: dict[str, list[tuple[str, str]]] = {}
    for at in folders:
        for path in sorted(at.rglob("*.py")):
            if found := _NUMBER.search(str(path)):
                number, who = str(int(found[1])), path.relative_to(at).parts[0]
                replies.setdefault(number, []).append((who, path.read_text(errors="replace")))
    return replies


def _measure_all(args: argparse.Namespace) -> None:
    done = (
        {json.loads(line)["id"] for line in args.out.read_text().splitlines()} if args.out.exists() else set()
    )
    pairs = list(_pairs(args))
    random.Random(args.seed).shuffle(pairs)  # what an interrupted run has is a sample
    part, parts = map(int, args.part.split("/"))
    todo = [pair for pair in pairs[: args.problems][part::parts] if pair[0].id not in done]
    with (
        Judge(args.workers) as judge,
        Answers() as answers,
        ThreadPoolExecutor(args.workers) as pool,
        args.out.open("a") as sink,
    ):
        runs = Runs(judge, 3)
        strengthener = Strengthener(runs, answers, Effort())
        work = [pool.submit(_measured, *pair, runs, strengthener, args) for pair in todo]
        for number, future in enumerate(as_completed(work), 1):
            sink.write(json.dumps(future.result()) + "\n")
            sink.flush()
            print(f"{number} of {len(work)}", flush=True)


def _measured(
    problem: Problem,
    plus: Problem,
    replies: list[tuple[str, str]],
    runs: Runs,
    strengthener: Strengthener,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """The row of a problem. Every second author of replies votes in the mode ``samples``; the others are
    judged."""
    authors = sorted({who for who, _ in replies})
    voters = {*authors[::2]}
    samples = [Program("python", joined_reply(problem, text)) for who, text in replies if who in voters]
    started = time.process_time()
    alone = strengthener.strengthen(problem)
    own_s = time.process_time() - started
    voted = alone
    if len(samples) >= _FEWEST_VOTERS:
        voted = strengthener.strengthen(problem, programs=GivenPrograms([], [], samples))
    reference, right = problem.references[0], plus.references[0]
    suites = {
        name: with_added(problem, made.added) if made.added.count else problem
        for name, made in (("alone", alone), ("samples", voted))
    }
    row: dict[str, Any] = {
        "id": problem.id,
        "reason": alone.reason,
        "added": {"alone": alone.added.count, "samples": voted.added.count},
        "evidence": {
            "alone": msgspec.to_builtins(alone.evidence),
            "samples": msgspec.to_builtins(voted.evidence),
        },
        "plus_inputs": _plus_inputs(plus),
        "reference_by_plus": run_program(runs, plus, reference.source).verdict.value,
        "cpu_s": {
            name: _cpu(run_program(runs, each, reference.source))
            for name, each in (("base", problem), *suites.items(), ("plus", plus))
        },
        "own_s": round(own_s, 2),
        "lookup": _lookup_verdict(problem, suites["alone"], runs),
        "wrong": [],
        "right": [],
    }
    plus_s = row["cpu_s"]["plus"]
    if plus_s > _MOST_PLUS_S:
        return row
    held_out = [(who, text) for who, text in replies if who not in voters]
    random.Random(problem.id).shuffle(held_out)
    most = max(6, int(_REPLIES_S / max(plus_s, 0.01)))
    pool = [("original", reference.source, "")]
    pool += [("reply", joined_reply(problem, text), who) for who, text in held_out[:most]]
    pool += [("right of EvalPlus", right.source, ""), *_surviving(problem, runs, args)]
    seen: set[str] = set()
    for kind, text, what in pool:
        if text in seen or not run_program(runs, problem, text, 1.0).accepted:
            continue
        seen.add(text)
        by_plus = run_program(runs, plus, text, max(1.0, 4 * plus_s))
        if not by_plus.accepted and by_plus.verdict not in REFUSED:
            continue
        judged = {name: run_program(runs, suite, text, 2.0) for name, suite in suites.items()}
        said = {"kind": kind, "what": what, "source": text}
        said |= {name: judgement.verdict.value for name, judgement in judged.items()}
        why = {name: next((c.reason for c in one.cases if c.reason), "") for name, one in judged.items()}
        row["right" if by_plus.accepted else "wrong"].append({**said, "why": why})
    return row


def _surviving(problem: Problem, runs: Runs, args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Mutants of each kind that the old tests accept: the kind, the program, and the change."""
    reference, seed = problem.references[0].source, f"b{problem.id}"
    kinds = {
        "mutant": [(m.kind, m.source) for m in mutants(reference, args.mutants, seed)],
        "other mutant": other_mutants(reference, args.mutants, seed),
    }
    for kind, found in kinds.items():
        accepted = (one for one in found if run_program(runs, problem, one[1], 0.5).accepted)
        for _, (change, text) in zip(range(args.most), accepted, strict=False):
            yield kind, text, change


def _lookup_verdict(problem: Problem, ours: Problem, runs: Runs) -> str:
    """The verdict of the new tests on a program that knows the given inputs only, empty if there is none."""
    try:
        form = read_tests(problem)
    except UnreadableTests:
        return ""
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    name = tests.entry_point or _last_function(problem.references[0].source)
    known = {repr(tuple(arguments)) for arguments in form.seeds}
    source = (
        f"{problem.references[0].source}\n\n_right, _known = {name}, {known!r}\n\n"
        f"def {name}(*given):\n    return _right(*given) if repr(given) in _known else None\n"
    )
    if not run_program(runs, problem, source).accepted:
        return ""
    return run_program(runs, ours, source).verdict.value


def _last_function(source: str) -> str:
    """The name of the last function of a program: that of MBPP's problems, whose tests name none."""
    return [node.name for node in parse(source).body if isinstance(node, ast.FunctionDef)][-1]


def run_program(runs: Runs, problem: Problem, source: str, cpu_s: float = 10.0) -> Judgement:
    """A judgement under the problem's time limit, or ``cpu_s`` seconds where that is less."""
    limits = msgspec.structs.replace(problem.limits, cpu_s=min(problem.limits.cpu_s, cpu_s))
    hurried: Problem = msgspec.structs.replace(problem, limits=limits)
    return runs.run(hurried, Program("python", source), stop_at_first_failure=True, confirm_time_limit=False)


def joined_reply(problem: Problem, reply: str) -> str:
    """A reply without its own tests, and whole where it is the body alone."""
    starter = (problem.starter or "") if problem.meta.get(COMPLETES_STARTER) else ""
    for text in (reply, starter + reply):
        tree = parsed(text)
        if tree is None:
            continue
        tree.body = [node for node in tree.body if not isinstance(node, ast.Assert | ast.Expr)]
        imports = "".join(line + "\n" for line in starter.splitlines() if line.startswith(("import", "from")))
        return imports + ast.unparse(tree) + "\n"
    return reply


def _plus_inputs(plus: Problem) -> int:
    from whetstone.data.sources.plus_tests import plus_inputs

    found = plus_inputs(plus.tests)  # pyright: ignore[reportArgumentType]
    return len(found.base) + len(found.plus) if found else 0


def _cpu(judgement: Judgement) -> float:
    return round(sum(case.cpu_s for case in judgement.cases), 4)


def _show(rows: list[dict[str, Any]]) -> None:
    for name in ("humaneval", "mbpp", ""):
        mine = [row for row in rows if row["id"].startswith(name)]
        if mine:
            _show_one(name or "both", mine)


def _show_one(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the tables of a benchmark: programs of problems whose reference EvalPlus accepts, then of all."""
    print(
        f"\n## {name}: {len(rows)} problems, left: {dict(Counter(r['reason'] for r in rows if r['reason']))}"
    )
    trusted = [row for row in rows if row["reference_by_plus"] == "accepted"]
    print(f"EvalPlus rejects the reference of {len(rows) - len(trusted)}.\n")
    print("| programs | references alone | with samples | all problems, alone | with samples |")
    print("| --- | --- | --- | --- | --- |")
    for title, label, kinds in _GROUPS:
        cells: list[str] = []
        for some in (trusted, rows):
            found = [one for row in some for one in row[label] if one["kind"] in kinds]
            for mode in MODES:
                refused = sum(one[mode] != "accepted" for one in found)
                share = f" ({refused / len(found):.1%})" if found else ""
                cells.append(f"{refused} of {len(found)}{share}")
        print(f"| {title} | {' | '.join(cells)} |")
    for mode in MODES:
        by = Counter(row["id"] for row in trusted for one in row["right"] if one[mode] != "accepted")
        print(f"right programs rejected, {mode}: {', '.join(f'{id_} {n}' for id_, n in by.most_common())}")
    added = [[row["added"][mode] for row in rows if row["added"][mode]] for mode in MODES]
    print("new tests, median:", [statistics.median(each) for each in added])
    print(f"EvalPlus' inputs, median: {statistics.median(row['plus_inputs'] for row in rows)}")
    for suite in ("base", *MODES, "plus"):
        costs = [1000 * row["cpu_s"][suite] for row in rows]
        print(f"CPU ms of a reference, {suite}: median {statistics.median(costs):.1f}")
    print("strengthening, CPU s of this process, median:", statistics.median(row["own_s"] for row in rows))
    print("programs that know the given inputs only:", dict(Counter(row["lookup"] for row in rows)))


if __name__ == "__main__":
    main()
