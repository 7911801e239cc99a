"""Tests for contest problems from samples and references alone, held against the packages' own tests.

    benchmarks/strengthen_contests.py measure FOLDER... --out rows.jsonl
    benchmarks/strengthen_contests.py show rows.jsonl

A folder has Kattis problem packages with submissions (``contest_packages.py`` reads them). A problem gets new
tests from its sample tests and two accepted submissions. Its wrong submissions, and its other accepted ones,
are then judged by the samples alone, by the samples with the new tests, and by the package's own tests (the
``--cases`` shortest). A submission is wrong or correct as the package's tests find it. The same command
resumes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from contest_packages import stdin_problems
from whetstone.core.intervals import share_interval
from whetstone.core.problem import Problem, Program, Scoring, StdinTests
from whetstone.data.select import cut_cases
from whetstone.data.validate.runs import Runs
from whetstone.judge import Judge, Judgement, Verdict
from whetstone_curation.strengthen.answers import Answers
from whetstone_curation.strengthen.forms import with_added
from whetstone_curation.strengthen.strengthener import Effort, Strengthener

SUITES = ("samples", "new tests", "package")
_REFERENCES = 2
_REFUSED = (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR, Verdict.TIME_LIMIT)


def main() -> None:
    """Measure the packages of folders, or print the table of measured rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    measure = actions.add_parser("measure")
    measure.add_argument("folders", nargs="+", type=Path)
    measure.add_argument("--out", type=Path, required=True)
    measure.add_argument("--cases", type=int, default=30, help="tests of a package, the shortest")
    measure.add_argument("--submissions", type=int, default=8, help="of each label, at most")
    measure.add_argument("--inputs", type=int, default=400, help="inputs made for a problem")
    actions.add_parser("show").add_argument("rows", type=Path)
    args = parser.parse_args()
    if args.action == "show":
        _show([json.loads(line) for line in args.rows.read_text().splitlines()])
        return
    done: set[str] = set()
    if args.out.exists():
        done = {json.loads(line)["id"] for line in args.out.read_text().splitlines()}
    with Judge(1) as judge, Answers() as answers, args.out.open("a") as sink:
        runs = Runs(judge, 3)
        strengthener = Strengthener(runs, answers, Effort(inputs=args.inputs))
        for problem, samples in stdin_problems(args.folders):
            if problem.id in done or not samples:
                continue
            row = _measured(problem, samples, runs, strengthener, args.cases, args.submissions)
            sink.write(json.dumps(row) + "\n")
            sink.flush()
            print(f"{problem.id}: {row['reason'] or row['added']}", flush=True)


def _measured(
    problem: Problem, samples: int, runs: Runs, strengthener: Strengthener, cases: int, most: int
) -> dict[str, Any]:
    plain = msgspec.structs.replace(problem, scoring=Scoring())
    package = cut_cases(plain, cases, "shortest", 0)
    row: dict[str, Any] = {
        "id": problem.id,
        "reason": "",
        "added": 0,
        "cases": cases,
        "wrong": [],
        "right": [],
    }
    right = [p for p in problem.references[: most + _REFERENCES] if _judged(runs, package, p).accepted]
    right.sort(key=lambda program: program.language != "python")
    wrong = [p for p in problem.wrong[:most] if _judged(runs, package, p).verdict in _REFUSED]
    if not right:
        return {**row, "reason": "no accepted submission here"}
    assert isinstance(plain.tests, StdinTests)
    tests = msgspec.structs.replace(plain.tests, cases=plain.tests.cases[:samples])
    bare: Problem = msgspec.structs.replace(plain, tests=tests, references=right[:_REFERENCES], wrong=[])
    started, own = time.monotonic(), time.process_time()
    made = strengthener.strengthen(bare)
    row |= {"reason": made.reason, "detail": made.detail, "added": made.added.count}
    row |= {"wall_s": round(time.monotonic() - started, 1), "own_s": round(time.process_time() - own, 1)}
    stronger = with_added(bare, made.added) if made.added.count else bare
    suites = dict(zip(SUITES, (bare, stronger, package), strict=True))
    for label, programs in (("wrong", wrong), ("right", right[_REFERENCES:])):
        for program in programs:
            verdicts = {name: _judged(runs, suite, program).verdict.value for name, suite in suites.items()}
            row[label].append({"language": program.language, **verdicts})
    return row


def _judged(runs: Runs, problem: Problem, program: Program) -> Judgement:
    return runs.run(problem, program, stop_at_first_failure=True)


def _show(rows: list[dict[str, Any]]) -> None:
    """Print shares over submissions, with intervals over problems."""
    measured = [row for row in rows if row["wrong"] or row["right"]]
    print(f"{len(rows)} problems, {len(measured)} with submissions to judge")
    reasons = sorted({row["reason"] for row in rows if row["reason"]})
    for reason in reasons:
        print(f"  no new tests, {reason}: {sum(row['reason'] == reason for row in rows)}")
    stronger = [row for row in measured if row["added"]]
    for title, some in (("all problems", measured), ("problems with new tests", stronger)):
        print(f"\n{title} ({len(some)})\n\n| submissions | {' | '.join(SUITES)} |\n| --- | --- | --- | --- |")
        for label, wanted in (("wrong", "rejected"), ("right", "accepted")):
            cells = [_cell(some, label, suite) for suite in SUITES]
            print(f"| {label}, {wanted} | {' | '.join(cells)} |")
    if stronger:
        print(f"\nnew tests, median: {median(row['added'] for row in stronger)}")
        print(f"wall seconds of strengthening, median: {median(row['wall_s'] for row in stronger)}")


def _cell(rows: list[dict[str, Any]], label: str, suite: str) -> str:
    good = [[(one[suite] == "accepted") == (label == "right") for one in row[label]] for row in rows]
    shares = [sum(each) / len(each) for each in good if each]
    flat = [value for each in good for value in each]
    if not flat:
        return "none"
    low, high = share_interval(shares)
    return f"{sum(flat)} of {len(flat)}; mean {sum(shares) / len(shares):.0%} ({low:.0%} to {high:.0%})"


if __name__ == "__main__":
    main()
