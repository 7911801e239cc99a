"""From a set with every documented defect to one without: validate, dedupe and decontaminate in turn.

What is a defect of one problem is validation's to name; what only shows beside other problems, a duplicate
from another source or a problem of HumanEval, is named by the other two. No clean problem is lost.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from pathlib import Path

import msgspec
import pytest

from tests.data.clean_problems import LIMITS, clean_problems
from tests.data.defective_problems import QUICK, defective_problems, lower_size_bounds
from whetstone.cli import data
from whetstone.core.problem import AssertTests, Problem, Program
from whetstone.data.dataset import load_problems
from whetstone.data.decisions import ProblemDecision, read_decisions
from whetstone.data.files import write_problems
from whetstone.data.validate.policy import Policy

WEIGHTS = (
    "Dana weighs her parcels before she posts them. Read the weights of all parcels, separated by blanks, "
    "and print the weight of the heaviest parcel and the weight of the lightest one, in this order."
)


def whetstone_data(*argv: str | Path) -> int:
    parser = argparse.ArgumentParser()
    data.add_parser(parser.add_subparsers(dest="verb"))
    return data.run(parser.parse_args(["data", *map(str, argv)]))


@pytest.fixture
def humaneval() -> Path:
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    file = Path(os.environ.get("WHETSTONE_SHARED", beside)) / "data" / "humaneval" / "HumanEval.jsonl.gz"
    if not file.is_file():
        pytest.skip(f"no {file}; set WHETSTONE_SHARED to the folder that has data/")
    return file


def contaminated(file: Path) -> Problem:
    """A problem of HumanEval under another name, from another source, with its docstring as the statement."""
    row = json.loads(gzip.decompress(file.read_bytes()).splitlines()[0])
    return Problem(
        "made/neighbours",
        "Solve this. " + row["prompt"].split('"""')[1],
        AssertTests(check=row["test"], entry_point=row["entry_point"]),
        limits=LIMITS,
        references=[Program("python", row["prompt"] + row["canonical_solution"])],
        source="made",
    )


def duplicates() -> list[Problem]:
    """One problem as two sources give it: ids, spacing and the order of the tests differ."""
    made = clean_problems()[0]
    cases = [(weights, f"{max(map(int, weights.split()))} {min(map(int, weights.split()))}\n")
             for weights in ("3 1 2\n", "5\n", "7 7 9\n", "10 20 30 40\n", "8 6\n")]  # fmt: skip
    tests = [{"input": given, "output": expected} for given, expected in cases]
    source = "w = list(map(int, input().split()))\nprint(max(w), min(w))\n"
    one = msgspec.structs.replace(
        made,
        id="made/parcels",
        statement=WEIGHTS,
        tests=msgspec.convert({"kind": "stdin", "cases": tests}, type(made.tests)),
        references=[Program("python", source)],
    )
    other = msgspec.structs.replace(
        one,
        id="elsewhere/1234",
        source="elsewhere",
        statement=WEIGHTS.replace(". ", ".\n\n") + "\n",
        tests=msgspec.convert({"kind": "stdin", "cases": tests[::-1]}, type(made.tests)),
    )
    return [one, other]


@pytest.mark.process
def test_every_defect_is_caught_and_named_and_no_clean_problem_is_lost(
    tmp_path: Path, humaneval: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lower_size_bounds(monkeypatch)
    defective = defective_problems()
    # Those that are the same problem once more, in another form, are for dedupe to drop.
    twins = ("made/crlf", "made/method", "made/asserts", "made/unittest")
    clean = [problem for problem in clean_problems() if problem.id not in twins]
    one, other = duplicates()
    copied = contaminated(humaneval)
    problems = [*(problem for _, problem in defective), *clean, one, other, copied]
    write_problems(tmp_path / "raw.jsonl", problems)
    bounds = tmp_path / "policy.yaml"
    bounds.write_text(json.dumps(QUICK))
    sets = [tmp_path / name for name in ("valid", "distinct", "final")]
    assert whetstone_data("validate", tmp_path / "raw.jsonl", "--out", sets[0], "--policy", bounds) == 0
    assert whetstone_data("dedupe", sets[0], "--out", sets[1]) == 0
    against = f"humaneval={humaneval}"
    assert whetstone_data("decontaminate", sets[1], "--out", sets[2], "--against", against) == 0
    dropped: dict[str, ProblemDecision] = {}
    named: dict[str, set[str]] = {}
    for decision in read_decisions(sets[2] / "decisions.jsonl"):
        named.setdefault(decision.problem_id, set()).add(decision.reason)
        if decision.action == "drop":
            dropped[decision.problem_id] = decision
    for reason, problem in defective:
        assert reason in named[problem.id], (problem.id, named[problem.id])
        if Policy().treatment(reason) == "drop":
            assert dropped[problem.id].step == "validate"
    assert dropped[copied.id].step == "decontaminate"
    assert "humaneval/0" in dropped[copied.id].detail
    (duplicate,) = [problem.id for problem in (one, other) if problem.id in dropped]
    assert dropped[duplicate].step == "dedupe"
    kept = {problem.id for problem in load_problems(sets[2])}
    assert {problem.id for problem in clean} <= kept
    assert kept.isdisjoint(dropped)
