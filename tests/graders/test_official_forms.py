"""Programs meet in our judge what they meet in the official graders; no expected value meets them.

The verdicts of ``official_programs.toml`` are those of the graders themselves (see benchmarks/official.md).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from whetstone.core.problem import CallCase, CallTests, Problem, StdinCase, StdinTests
from whetstone.judge import Judge
from whetstone_graders import COMPARISONS, evalplus, livecodebench
from whetstone_graders.calling import Caller
from whetstone_graders.evalplus import EvalPlusTask
from whetstone_graders.form import OfficialForm

PROGRAMS = Path(__file__).with_name("official_programs.toml")


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=2, stop_at_first_failure=True, comparisons=COMPARISONS) as judge:
        yield judge


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with Caller() as caller:
        yield caller


def _accepts(judge: Judge, form: OfficialForm | None, code: str) -> bool:
    assert form is not None
    judged = judge.judge(form.problem, form.program(code))
    assert judged.score is not None, judged.reason
    return judged.accepted


def check_verdicts(judge: Judge, form: OfficialForm | None, name: str) -> None:
    """Judge the programs of a table of ``official_programs.toml``."""
    programs = tomllib.loads(PROGRAMS.read_text(encoding="utf-8"))[name]
    for verdict in ("accepted", "rejected"):
        assert programs[verdict]
        for code in programs[verdict]:
            assert _accepts(judge, form, code) is (verdict == "accepted"), code


_LINES = Problem(
    "lines",
    "",
    StdinTests([StdinCase("3\n1\n2\n3\n", "6\n"), StdinCase("1\n-5\n", "-5\n")]),
    source="livecodebench",
)


def test_livecodebench_programs_that_print(judge: Judge) -> None:
    check_verdicts(judge, livecodebench.official_form(_LINES), "livecodebench_stdin")


_PAIRS = Problem(
    "pairs",
    "",
    CallTests(
        [CallCase(expected=[[0, 1], [1, 0]], args=[2]), CallCase(expected=[[0, 0]], args=[1])],
        "f",
        "Solution",
    ),
    source="livecodebench",
)


def test_livecodebench_functions(judge: Judge) -> None:
    check_verdicts(judge, livecodebench.official_form(_PAIRS), "livecodebench_calls")


def _task(
    reference: str, base: list[list[object]], entry: str = "f", dataset: str = "humaneval"
) -> EvalPlusTask:
    return EvalPlusTask(dataset, entry, reference, base, [[7]], 0)


_HALF = "def f(x):\n    return x / 4 if x < 5 else (x, 10**9)"
_PLUS = Problem("half", "", CallTests([CallCase(expected=0)], "f"), source="humanevalplus")


@pytest.mark.process
def test_evalplus_programs(judge: Judge, caller: Caller) -> None:
    # Base inputs expect floats, so that a tolerance holds there; for plus inputs it begins anew.
    form = evalplus.official_form(_PLUS, _task(_HALF, [[1.0], [2.0]]), caller)
    check_verdicts(judge, form, "evalplus")


@pytest.mark.process
def test_evalplus_tolerance_stays_on_for_integers_after_a_float(judge: Judge, caller: Caller) -> None:
    floats_first = _task("def f(x):\n    return x / 4 if x < 5 else 10**9", [[1.0], [7]])
    integers_first = _task(floats_first.reference, [[7], [1.0]])
    off_by_one = "def f(x):\n    return x / 4 if x < 5 else 10**9 + (1 if x != 8 else 0)"
    forms = [
        evalplus.official_form(_PLUS, EvalPlusTask("humaneval", "f", t.reference, t.base, [[8]], 0), caller)
        for t in (floats_first, integers_first)
    ]
    assert [_accepts(judge, form, off_by_one) for form in forms] == [True, False]


@pytest.mark.process
def test_evalplus_special_rules_come_with_the_dataset(judge: Judge, caller: Caller) -> None:
    reference = "import re\ndef check_str(s):\n    return re.search('a', str(s))"
    task = _task(reference, [["ba"], ["b"]], "check_str", "mbpp")
    form = evalplus.official_form(_PLUS, task, caller)
    assert _accepts(judge, form, "def check_str(s):\n    return 'a' in str(s)")
    assert _accepts(judge, form, "def check_str(s):\n    return object() if 'a' in str(s) else None")
    assert not _accepts(judge, form, "def check_str(s):\n    return object()")
    pair = _task("def Diff(x):\n    return [1, x]", [[2]], "Diff", "mbpp")
    form = evalplus.official_form(_PLUS, pair, caller)
    assert _accepts(judge, form, "def Diff(x):\n    return (y for y in (x, 1, x))")
    floats = evalplus.official_form(
        _PLUS, _task("def Diff(x): return [x / 4]", [[2]], "Diff", "mbpp"), caller
    )
    assert _accepts(judge, floats, "def Diff(x): return [x / 4 + 1e-7]")
    assert not _accepts(judge, floats, "def Diff(x): return (x / 4 + 1e-7,)")


@pytest.mark.process
def test_an_endless_call_ends_when_its_own_time_is_over(
    judge: Judge, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evalplus, "SECONDS", 0.2)
    form = evalplus.official_form(_PLUS, _task("def f(x): return x", [[1]]), caller)
    judged = judge.judge(form.problem, form.program("def f(x):\n    while True: pass"))
    assert not judged.accepted
    assert "TimeoutException" in judged.reason


@pytest.mark.process
def test_no_expected_value_is_in_the_program_or_its_arguments(caller: Caller) -> None:
    form = evalplus.official_form(_PLUS, _task("def f(x):\n    return x + 86371452", [[1]]), caller)
    tests = form.problem.tests
    assert isinstance(tests, CallTests)
    assert tests.cases[0].expected == [None, "86371453"]
    given = [form.program("def f(x): return x").source, *map(repr, (case.args for case in tests.cases))]
    assert not any("8637145" in text for text in given)
