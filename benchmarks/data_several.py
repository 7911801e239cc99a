"""Several right answers: what validation does about problems whose own judges accept more than one.

    .venv/bin/python benchmarks/data_several.py packages FOLDER... [--cases 12] [--submissions 6]
    .venv/bin/python benchmarks/data_several.py words FOLDER...
    .venv/bin/python benchmarks/data_several.py statements FILE...

``packages``: folders of Kattis problem packages, of which validators, flags and submissions are public. Each
is taken as other sets hold it, with neither validator nor flags, and validated as before (marks only, no
comparison set) and as now. A submission is right when the package's own rule accepts it on the cases that
are used, the shortest ones. Printed is how many right submissions the problems which are kept refuse.
``words``: how many statements of the same packages say what their rule needs; no program is run.
``statements``: JSON arrays with a ``problem`` or ``question`` each; how many say what.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from contest_packages import stdin_problems
from whetstone import __version__
from whetstone.core.errors import UserError
from whetstone.core.problem import Compare, Problem, Program, Scoring
from whetstone.data.select import cut_cases
from whetstone.data.validate.comparing import freedom_of
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.runs import Runs
from whetstone.data.validate.validator import Validator, settle
from whetstone.judge import Judge, Verdict

NOW = Policy(repeats=1, mutants=0, trivial_programs=False, judge_attempts=2)
BEFORE = NOW.with_values(ignore=["comparison_set"], mark=["several_answers", "any_case", "float_tolerance"])


def main() -> None:
    """Run the part that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    packages = parts.add_parser("packages")
    packages.add_argument("folders", nargs="+", type=Path)
    packages.add_argument("--cases", type=int, default=12)
    packages.add_argument("--submissions", type=int, default=6, help="right and wrong ones, at most")
    packages.add_argument("--workers", type=int, default=1)
    parts.add_parser("words").add_argument("folders", nargs="+", type=Path)
    statements = parts.add_parser("statements")
    statements.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args()
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    print(f"Whetstone {__version__}, {machine}, load average {os.getloadavg()[0]:.1f}")
    if args.part == "packages":
        measure(args.folders, args.cases, args.submissions, args.workers)
    elif args.part == "words":
        read_words(args.folders)
    else:
        count(args.files)


def measure(folders: list[Path], cases: int, most: int, workers: int) -> None:
    """Print a line for each package, and the sums."""
    sums: Counter[str] = Counter()
    with Judge(workers) as judge:
        for problem, _ in stdin_problems(folders):
            cut = msgspec.structs.replace(problem, scoring=Scoring())
            cut = cut_cases(cut, cases, "shortest", 0)
            cut = msgspec.structs.replace(cut, references=cut.references[:most], wrong=cut.wrong[:most])
            right = [p for p in cut.references if verdict(judge, cut, p) is Verdict.ACCEPTED]
            wrong = [p for p in cut.wrong if verdict(judge, cut, p) is Verdict.WRONG_ANSWER]
            if not right:
                sums["without a right submission here"] += 1
                continue
            bare = msgspec.structs.replace(
                cut, checker=None, compare=Compare(), references=right, wrong=[], meta={}
            )
            truth = truth_of(cut)
            sums[f"{truth}: packages"] += 1
            found = [
                result(judge, bare, policy, name, right, wrong, truth, sums)
                for policy, name in ((BEFORE, "before"), (NOW, "now"))
            ]
            print(
                f"{problem.id:50} {truth:10} {len(right)} right, {len(wrong)} wrong; {'; '.join(found)}",
                flush=True,
            )
    for name in sorted(sums):
        print(f"{name}: {sums[name]}")


def result(
    judge: Judge,
    bare: Problem,
    policy: Policy,
    name: str,
    right: list[Program],
    wrong: list[Program],
    truth: str,
    sums: Counter[str],
) -> str:
    """What a policy makes of a problem, in words, counted."""
    outcome = Validator(Runs(judge, policy.judge_attempts), policy).validate(bare)
    kept = [item for item in settle(bare, outcome, policy) if isinstance(item, Problem)]
    if not kept:
        dropped = policy.drops(outcome.flags)
        reason = dropped.reason if dropped else ""
        sums[f"{truth}: {name}: dropped: {reason}"] += 1
        return f"{name}: dropped, {reason}"
    refused = len(right) - len(outcome.accepted)
    passed = sum(verdict(judge, kept[0], program) is Verdict.ACCEPTED for program in wrong)
    for what, number in (
        ("kept", 1),
        ("right submissions of kept", len(right)),
        ("right submissions refused", refused),
        ("kept that refuse a right submission", int(refused > 0)),
        ("wrong submissions of kept", len(wrong)),
        ("wrong submissions accepted", passed),
    ):
        sums[f"{truth}: {name}: {what}"] += number
    return f"{name}: kept ({kept[0].compare.mode}), {refused} right refused, {passed} wrong accepted"


def truth_of(problem: Problem) -> str:
    """What the package's own rule is: a validator of its own, an error of numbers, or neither."""
    return (
        "validator"
        if problem.checker
        else "tolerance"
        if problem.compare.abs or problem.compare.rel
        else "exact"
    )


def read_words(folders: list[Path]) -> None:
    """Print, for each rule, of how many packages the statement's words say so."""
    said: Counter[str] = Counter()
    for problem, _ in stdin_problems(folders):
        freedom = freedom_of(problem.statement)
        truth = truth_of(problem)
        said[f"{truth}: packages"] += 1
        said[f"{truth}: several answers said"] += bool(freedom.several)
        said[f"{truth}: an error said"] += freedom.tolerance is not None
        said[f"{truth}: any case said"] += bool(freedom.any_case)
    for name in sorted(said):
        print(f"{name}: {said[name]}")


def verdict(judge: Judge, problem: Problem, program: Program) -> Verdict:
    """The verdict, by the problem's own rule."""
    try:
        return judge.judge(problem, program, stop_at_first_failure=True, confirm_time_limit=False).verdict
    except UserError:
        return Verdict.JUDGE_ERROR


def count(files: list[Path]) -> None:
    """Print how many statements of each file leave what open."""
    for file in files:
        rows: list[dict[str, Any]] = json.loads(file.read_text())
        freedoms = [freedom_of(row.get("problem") or row["question"]) for row in rows]
        said = {
            "several answers": sum(bool(one.several) for one in freedoms),
            "any case": sum(bool(one.any_case) for one in freedoms),
            "an error": sum(one.tolerance is not None for one in freedoms),
        }
        print(f"{file.name}: {len(rows)} statements; {said}")


if __name__ == "__main__":
    main()
