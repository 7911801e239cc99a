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
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import msgspec

from other_mutants import other_mutants
from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Problem, Program
from whetstone.core.syntax import parse, parsed
from whetstone.data.strengthen.answers import Answers
from whetstone.data.strengthen.forms import NotRead, reads, with_added
from whetstone.data.strengthen.strengthener import Effort, Strengthener
from whetstone.data.validate.mutants import mutants
from whetstone.data.validate.runs import Runs
from whetstone.evaluate.benchmarks import load_benchmark
from whetstone.judge import Judge, Judgement, Verdict

_REFUSED = (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)
"""What counts as refused: a clock decides nothing here."""
_NUMBER = re.compile(r"(\d+)(?:/\d+)?\.py$")
# EvalPlus' tests of a few problems need minutes. Problems whose reference needs more CPU time are left out.
_MOST_PLUS_S = 3.0
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
        replies: dict[str, list[tuple[str, str]]] = {}
        for at in (word.partition("=")[2] for word in args.replies if word.startswith(f"{name}=")):
            for path in sorted(Path(at).rglob("*.py")):
                if found := _NUMBER.search(str(path)):
                    number, who = str(int(found[1])), str(path.relative_to(at).parts[0])
                    replies.setdefault(number, []).append((who, path.read_text(errors="replace")))
        harder = {p.id.rpartition("/")[2]: p for p in load_benchmark(f"{name}plus", plus).problems}
        problems = [p for p in load_benchmark(name, base).problems if p.id.rpartition("/")[2] in harder]
        for problem in problems:
            number = problem.id.rpartition("/")[2]
            yield problem, harder[number], replies.get(number, [])


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
    made = strengthener.strengthen(problem)
    ours = with_added(problem, made.added) if made.added.count else problem
    reference, right = problem.references[0], plus.references[0]
    row: dict[str, Any] = {
        "id": problem.id,
        "reason": made.reason,
        "added": made.added.count,
        "evidence": msgspec.to_builtins(made.evidence),
        "plus_inputs": _plus_inputs(plus),
        "reference_by_plus": _run(runs, plus, reference.source).verdict.value,
        "cpu_s": [_cpu(_run(runs, each, reference.source)) for each in (problem, ours, plus)],
        "lookup": _lookup_verdict(problem, ours, runs),
        "wrong": [],
        "right": [],
    }
    if row["cpu_s"][2] > _MOST_PLUS_S:
        return row
    seed = problem.id
    pool = [("original", reference.source, "")]
    random.Random(problem.id).shuffle(replies)
    most = max(6, int(_REPLIES_S / max(row["cpu_s"][2], 0.01)))
    pool += [("reply", _joined(problem, text), who) for who, text in replies[:most]]
    pool += [("right of EvalPlus", right.source, "")]
    kinds = {
        "mutant": [
            (m.change.partition(",")[0], m.source)
            for m in mutants(reference.source, args.mutants, f"b{seed}")
        ],
        "other mutant": other_mutants(reference.source, args.mutants, f"b{seed}"),
    }
    for kind, found in kinds.items():
        accepted = (one for one in found if _run(runs, problem, one[1], 0.5).accepted)
        surviving = ((kind, text, change) for change, text in accepted)
        pool += [one for _, one in zip(range(args.most), surviving, strict=False)]
    seen: set[str] = set()
    for kind, text, what in pool:
        if text in seen or not _run(runs, problem, text, 1.0).accepted:
            continue
        seen.add(text)
        by_plus = _run(runs, plus, text, max(1.0, 10 * row["cpu_s"][2]))
        by_ours = _run(runs, ours, text, 2.0)
        said = {"kind": kind, "what": what, "ours": by_ours.verdict.value, "source": text}
        if by_plus.verdict in _REFUSED:
            row["wrong"].append(said)
        elif by_plus.accepted:
            row["right"].append({**said, "why": next((c.reason for c in by_ours.cases if c.reason), "")})
    return row


def _lookup_verdict(problem: Problem, ours: Problem, runs: Runs) -> str:
    """The verdict of the new tests on a program that knows the given inputs only, empty if there is none."""
    try:
        form = reads(problem)
    except NotRead:
        return ""
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    name = tests.entry_point or _last_function(problem.references[0].source)
    known = {repr(tuple(arguments)) for arguments in form.seeds}
    source = (
        f"{problem.references[0].source}\n\n_right, _known = {name}, {known!r}\n\n"
        f"def {name}(*given):\n    return _right(*given) if repr(given) in _known else None\n"
    )
    return _run(runs, ours, source).verdict.value if _run(runs, problem, source).accepted else ""


def _last_function(source: str) -> str:
    """The name of the last function of a program: that of MBPP's problems, whose tests name none."""
    return [node.name for node in parse(source).body if isinstance(node, ast.FunctionDef)][-1]


def _run(runs: Runs, problem: Problem, source: str, cpu_s: float = 10.0) -> Judgement:
    """A judgement under the problem's time limit, or ``cpu_s`` seconds where that is less."""
    limits = msgspec.structs.replace(problem.limits, cpu_s=min(problem.limits.cpu_s, cpu_s))
    hurried: Problem = msgspec.structs.replace(problem, limits=limits)
    return runs.run(hurried, Program("python", source), stop_at_first_failure=True, confirm_time_limit=False)


def _joined(problem: Problem, reply: str) -> str:
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
    print(f"\n## {name}: {len(rows)} problems, {sum(row['added'] > 0 for row in rows)} with new tests")
    print("  left as they are:", dict(Counter(row["reason"] for row in rows if row["reason"])))
    trusted = [row for row in rows if row["reference_by_plus"] == "accepted"]
    for title, some in (("all", rows), ("whose own reference EvalPlus accepts", trusted)):
        wrong = [one for row in some for one in row["wrong"]]
        right = [
            (row["id"], one)
            for row in some
            for one in row["right"]
            if one["kind"] in ("reply", "right of EvalPlus")
        ]
        print(f"  problems: {title}: {len(some)}")
        for kind in (*dict.fromkeys(one["kind"] for one in wrong), ""):
            of = [one for one in wrong if kind in ("", one["kind"])]
            refused = sum(one["ours"] != "accepted" for one in of)
            print(
                f"    wrong, {kind or 'any'}: {refused} of {len(of)} refused, {refused / max(1, len(of)):.1%}"
            )
        by = [(id_, one) for id_, one in right if one["ours"] != "accepted"]
        print(f"    right: {len(by)} of {len(right)} refused: {', '.join(id_ for id_, _ in by)}")
    added = [row for row in rows if row["added"]]
    print(f"  new tests a problem: {sum(row['added'] for row in added) / max(1, len(added)):.1f}")
    print(f"  EvalPlus' inputs a problem: {sum(row['plus_inputs'] for row in rows) / len(rows):.1f}")
    base, ours, plus = (sum(row["cpu_s"][at] for row in rows) / len(rows) for at in range(3))
    print(f"  CPU s of a reference: base {base:.4f}, ours {ours:.4f}, EvalPlus {plus:.4f}")


if __name__ == "__main__":
    main()
