"""A program that knows which run it is in is never better off than with its best single guess.

Every kind of test, mode and tier; what a program does in each of its runs is drawn. The rule it is held
against stands here once more, in a few lines: the first run of a case that was not stopped by a time limit,
and in which no sandbox died, decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.beside import data_beside
from tests.judge.judge_problems import assert_problem, call_problem, python, stdin_problem
from tests.judge.knowing import LATER, SANDBOX_DIES, TESTS_DIE, KnowingBoxes, Plan, knowing
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.core.problem import problem_from
from whetstone.judge import Verdict
from whetstone.judge.failure_cause import DEATHS
from whetstone.judge.judging import judge_program
from whetstone.judge.options import JudgeOptions
from whetstone.sandbox import Tier

pytestmark = pytest.mark.process

CASES = {10: 107, 20: 407}
F = "def f(given): return act((given[0] > 10) + 0, given)\n"
CHECKER = "def check(given, output, expected): return output.split() == expected.split()"
READ = "given = [int(input())]\nprint(act((given[0] > 10) + 0, given))\n"
TALK = "import sys\n" + READ.replace("))\n", "), flush=True)\n") + "sys.stdin.readline()\n"
TEXTS: dict[str, str] = data_beside(__file__)["texts"]
INTERACTOR = TEXTS["interactor"]
FORGIVING = TEXTS["forgiving"]
THIRD = TEXTS["third"]
ASKING = TEXTS["asking"]
APART = "def check(f):\n    wanted = 107\n    assert f([10]) == wanted"
APART_LIST = [f"wanted = {w}\nassert f([{n}]) == wanted" for n, w in CASES.items()]
ASKING_UNITS = TEXTS["asking_units"]
ASKING_LIST = [f"wrong = f([{n}]) != {w} and (f([{n}]), 1)\nassert not wrong" for n, w in CASES.items()]
TALKING_ON = TEXTS["talking_on"]
UNITS = TEXTS["units"]
WITH = "def check(C):\n    with C() as c:\n        assert c.f([10]) == 107, str(c.f([10]))\n"
CLASS = (
    "class C:\n    def f(self, given): return act((given[0] > 10) + 0, given)\n    def close(self): pass\n"
)
CLASS += "    def __enter__(self): return self\n    def __exit__(self, *error): pass\n"


def _class_tests() -> dict[str, Any]:
    cases = [
        {"operations": ["C", "f"], "args": [[], [[n]]], "expected": [None, wanted]}
        for n, wanted in CASES.items()
    ]
    return {"id": "t/class", "statement": "", "tests": {"kind": "call", "class": "C", "cases": cases}}


def _interactive(source: str) -> dict[str, Any]:
    cases = [{"input": f"{n}\n"} for n in CASES]
    tests = {"kind": "interactive", "cases": cases, "interactor": {"type": "python", "source": source}}
    return {"id": "t/interactive", "statement": "", "tests": tests}


LINES = [(f"{n}\n", f"{wanted}\n") for n, wanted in CASES.items()]
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "stdin": (stdin_problem(*LINES), READ),
    "stdin, checked": (stdin_problem(*LINES, checker={"type": "python", "source": CHECKER}), READ),
    "call": (call_problem("f", *[([[n]], wanted) for n, wanted in CASES.items()]), F),
    "class": (_class_tests(), CLASS),
    "asserts": (assert_problem(asserts=[f"assert f([{n}]) == {w}" for n, w in CASES.items()]), F),
    "check": (assert_problem(check="def check(f):\n    assert f([10]) == 107", entry_point="f"), F),
    "asserts, apart": (assert_problem(asserts=APART_LIST), F),
    "check, apart": (assert_problem(check=APART, entry_point="f"), F),
    "check, asking again": (assert_problem(check=ASKING, entry_point="f"), F),
    "unittest, asking again": (assert_problem(unittest=ASKING_UNITS), CLASS),
    "asserts, asking again": (assert_problem(asserts=ASKING_LIST), F),
    "check, forgiving": (assert_problem(check=FORGIVING, entry_point="f"), THIRD),
    "check within": (assert_problem(check=WITH, entry_point="C"), CLASS),
    "unittest": (assert_problem(unittest=UNITS), CLASS),
    "interactive": (_interactive(INTERACTOR), TALK),
    "interactive, talking on": (_interactive(TALKING_ON), TALK + "print('well', flush=True)\n"),
}
ASKED = {"asserts", "check"}
"""Without a testing process: the judge itself asks."""
ONE_CASE = {"check", "check, apart", "check, forgiving", "check within", "unittest"}
ONE_CASE |= {"check, asking again", "unittest, asking again"}
LISTS = {"asserts", "asserts, apart", "asserts, asking again"}
INTERACTIVE = {"interactive", "interactive, talking on"}
THROUGH_PROXY = LISTS | ONE_CASE
LIMITS = {"cpu_s": 0.2, "memory_mb": 256.0, "output_mb": 1.0}
TRIES = 10
QUICK = ["right", "wrong", "crash", "exit", "abort", "spin", "flood"]


def actions(kind: str) -> list[str]:
    """What a program of this kind can do in a run, besides having its sandbox die."""
    if "asking again" in kind:
        # What a program says to the test before its sandbox dies is lost with that; no program can kill it.
        return [*QUICK, "memory", "close", *(a for a in LATER if SANDBOX_DIES not in a), TESTS_DIE]
    if kind in ASKED:
        return [*QUICK, "memory", "close", "strain", *LATER]
    if kind in THROUGH_PROXY:
        return [*QUICK, "memory", "close", "strain", *LATER, TESTS_DIE]
    return [*QUICK, "memory", *(LATER if kind in INTERACTIVE else ())]


def what_it_is(action: str) -> str:
    """``right``, refused (``wrong``), or an end that shows nothing: ``stopped`` by time, ``died``."""
    return {"right": "right", "spin": "stopped", SANDBOX_DIES: "died"}.get(action, "wrong")


def accepted(kind: str, options: JudgeOptions, plan: Plan) -> bool:
    """Whether the rule accepts a program that follows the plan."""
    entries: Iterator[tuple[str, ...]] = (plan[min(n, len(plan) - 1)] for n in range(10**6))
    cases = range(1 if kind in ONE_CASE else len(CASES))

    def alone(case: int, stopped: int = 0) -> bool:
        deaths = 0
        while stopped < (2 if options.confirm_time_limit else 1) and deaths < DEATHS:
            what = what_it_is(next(entries)[case])
            if what in ("right", "wrong"):
                return what == "right"
            stopped, deaths = (stopped + 1, 0) if what == "stopped" else (stopped, deaths + 1)
        return False

    if kind in LISTS:
        return _list(next(entries), alone)
    if not options.fork_per_case and kind in ("stdin", "stdin, checked", "call", "class"):
        return _in_sequence(next(entries), alone)
    return all(alone(case) for case in cases)


def _list(together: tuple[str, ...], alone: Callable[..., bool]) -> bool:
    first, second = map(what_it_is, together)
    if first in ("stopped", "died"):
        return alone(0, int(first == "stopped")) and alone(1)
    return first == "right" and (second == "right" or (second != "wrong" and alone(1)))


def _in_sequence(together: tuple[str, ...], alone: Callable[..., bool]) -> bool:
    """Only answers count; where there is none, the case is judged alone, and right answers with it."""
    answered: dict[int, bool] = {}
    crashed = False
    for case, action in enumerate(together):
        if action in ("right", "wrong"):
            answered[case] = action == "right"
        elif action == "crash":
            crashed = True
        elif action == "exit":
            break
        else:  # what ends the process otherwise takes its answers along
            return alone(0) and alone(1)
    if not all(answered.values()):
        return False
    left = [case for case in range(len(together)) if case not in answered]
    return all(alone(case) for case in left) and (not crashed or all(alone(case) for case in answered))


@pytest.fixture(scope="module", params=ALL_TIERS)
def boxes(request: pytest.FixtureRequest) -> Iterator[KnowingBoxes]:
    skip_unless_offered(request.param)
    with KnowingBoxes(request.param) as boxes:
        yield boxes


@pytest.fixture(scope="module")
def strongest() -> Iterator[KnowingBoxes]:
    with KnowingBoxes(Tier.RESTRICTED) as boxes:
        yield boxes


def check(boxes: KnowingBoxes, kind: str, options: JudgeOptions, plan: Plan) -> None:
    described, body = KINDS[kind]
    problem = problem_from({**described, "limits": LIMITS})
    link = (0,) if kind in INTERACTIVE else ()
    for _ in range(TRIES):
        boxes.follow(plan)
        judged = judge_program(boxes, problem, python(knowing(plan, body, *link)), options)
        if boxes.followed:
            break
    else:
        raise AssertionError(f"not once in {TRIES} tries by the plan: {boxes.story}")
    assert judged.verdict is not Verdict.JUDGE_ERROR, (judged, boxes.story)
    assert judged.accepted is accepted(kind, options, plan), (judged, boxes.story)
    assert judged.accepted == (judged.score == 1.0)


@pytest.mark.drawn(6)
@pytest.mark.parametrize("kind", KINDS)
def test_a_case_that_was_refused_once_stays_refused(boxes: KnowingBoxes, kind: str) -> None:
    """Whatever is done in the first run, the second one would be right."""
    for action in actions(kind):
        if action != "spin":
            check(boxes, kind, JudgeOptions(), [(action, action), ("right", "right")])


@pytest.mark.drawn(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_that_was_slow_once_is_accepted(strongest: KnowingBoxes, kind: str) -> None:
    check(strongest, kind, JudgeOptions(), [("spin", "right"), ("right", "right")])
    check(strongest, kind, JudgeOptions(), [("spin", "spin"), ("spin", "spin"), ("right", "right")])


def plans(kind: str, deaths: bool) -> st.SearchStrategy[Plan]:
    sure = st.sampled_from([*actions(kind), "right", "right", "spin"])
    action = sure | st.just(SANDBOX_DIES) if deaths else sure
    return st.lists(st.tuples(action, action), min_size=1, max_size=4)


MODES = st.builds(
    JudgeOptions,
    stop_at_first_failure=st.booleans(),
    confirm_time_limit=st.sampled_from([True, True, True, False]),
    fork_per_case=st.booleans(),
)


@settings(max_examples=12, derandomize=True)
@given(data=st.data())
def test_no_plan_beats_a_single_guess(boxes: KnowingBoxes, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    check(boxes, kind, data.draw(MODES), data.draw(plans(kind, deaths=False)))


@pytest.mark.drawn(5)
@pytest.mark.parametrize("kind", ["stdin", "asserts", "asserts, apart", "unittest", "interactive"])
def test_a_sandbox_that_dies_gives_no_second_guess(boxes: KnowingBoxes, kind: str) -> None:
    check(boxes, kind, JudgeOptions(), [(SANDBOX_DIES, "right"), ("right", "right")])
    check(boxes, kind, JudgeOptions(), [("wrong", SANDBOX_DIES), ("right", "right")])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=400)
@given(data=st.data())
def test_no_plan_beats_a_single_guess_in_many_more(boxes: KnowingBoxes, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    check(boxes, kind, data.draw(MODES), data.draw(plans(kind, deaths=True)))
