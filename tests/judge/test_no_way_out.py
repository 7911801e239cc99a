"""No behaviour of a program alone turns a failure into no reward, with or without a deadline.

Every program here fails every case, on tests of every kind. So each must have the score 0.0, never None. A
machine that is really too busy may be the reason for None: then the program is judged again, by itself, when
a core is free.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import python
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.judge import Judge, Judgement, Verdict

pytestmark = pytest.mark.process

CASES, AT_ONCE, WAITING_AT_ONCE, ATTEMPTS = 12, 2, 8, 4
DEADLINE_S = 1.0

DATA = data_beside(__file__)
# What a program does instead of an answer. Each ends by itself, at a limit, or never.
BEHAVIOURS: dict[str, str] = DATA["behaviours"]
# Those that a wall clock limit ends if nothing else does.
WAITING = {"sleeps", "sleeps again and again", "leaves children", "stops itself", "closes everything"} | {
    "talks nonsense to every descriptor",
    "has many maps",
    "has many threads",
}

_LIMITS = {"cpu_s": 0.2, "memory_mb": 256.0, "output_mb": 1.0}
_INPUTS = [{"input": f"{n}\n", "output": f"{n * n + 7}\n"} for n in range(CASES)]
_CHECKER = {
    "type": "python",
    "source": "def check(input, output, expected):\n    return int(output) == int(expected)",
}
_INTERACTOR = (
    "def interact(input, answer, read, write):\n    write(input)\n    return int(read()) == int(answer)"
)
_CALLS = [{"args": [n], "kwargs": {}, "expected": n * n + 7} for n in range(CASES)]
_CHECK = (
    "def check(f):\n    seen = []\n    for n in range(12):\n        seen.append(f(n))\n"
    "        assert seen[-1] == n * n + 7"
)
_IN_PLACE, _CALLED = "{0}", "def f(n):\n{1}"
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "stdin": ({"tests": {"kind": "stdin", "cases": _INPUTS}}, _IN_PLACE),
    "checker": ({"tests": {"kind": "stdin", "cases": _INPUTS}, "checker": _CHECKER}, _IN_PLACE),
    "call": ({"tests": {"kind": "call", "function": "f", "cases": _CALLS}}, _CALLED),
    "asked": (
        {"tests": {"kind": "assert", "asserts": [f"assert f({n}) == {n * n + 7}" for n in range(CASES)]}},
        _CALLED,
    ),
    "check": ({"tests": {"kind": "assert", "check": _CHECK, "entry_point": "f"}}, _CALLED),
    "interactive": (
        {
            "tests": {
                "kind": "interactive",
                "cases": [{"input": f"{n}\n", "answer": f"{n * n + 7}\n"} for n in range(CASES)],
                "interactor": {"type": "python", "source": _INTERACTOR},
            }
        },
        _IN_PLACE,
    ),
}


@pytest.fixture(scope="module", params=ALL_TIERS)
def judge_of_tier(request: pytest.FixtureRequest) -> Iterator[Judge]:
    skip_unless_offered(request.param)
    with Judge(WAITING_AT_ONCE, tier=request.param.label, confirm_time_limit=False) as judge:
        yield judge


def submission(kind: str, behaviour: str) -> tuple[dict[str, Any], str]:
    fields, form = KINDS[kind]
    source = BEHAVIOURS[behaviour]
    indented = "\n".join("    " + line for line in source.splitlines())
    references = [{"language": "python", "source": "def f(n): return n * n + 7"}] if "{1}" in form else []
    problem = {"id": f"t/{kind}", "statement": "", "limits": _LIMITS, "references": references, **fields}
    return problem, form.format(source, indented)


def wait_for_a_core() -> None:
    """Until this process gets most of one, for a minute at most."""
    for _ in range(60):
        began, used = time.monotonic(), time.process_time()
        while time.monotonic() < began + 0.05:
            pass
        if time.process_time() - used > 0.03:
            return
        time.sleep(1.0)


def unpaid(
    judge: Judge, named: list[tuple[str, str]], at_once: int = AT_ONCE, **options: Any
) -> dict[str, str]:
    """Of programs by kind and behaviour: those without a score, also when each is judged by itself."""

    def judged(name: tuple[str, str]) -> Judgement:
        problem, source = submission(*name)
        return judge.judge(problem, python(source), **options)

    def said(judgement: Judgement) -> str:
        assert judgement.verdict is not Verdict.ACCEPTED
        return "" if judgement.score == 0.0 else f"{judgement.verdict}: {judgement.reason}"

    with ThreadPoolExecutor(at_once) as threads:
        found = dict(zip(named, threads.map(judged, named), strict=True))
    wrong = {name: said(judgement) for name, judgement in found.items() if said(judgement)}
    for name in list(wrong):
        for _ in range(ATTEMPTS):
            if wrong[name]:
                wait_for_a_core()
                wrong[name] = said(judged(name))
    return {" ".join(name): why for name, why in wrong.items() if why}


@pytest.mark.crowd
@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", KINDS)
def test_with_a_deadline(judge_of_tier: Judge, kind: str) -> None:
    named = list(product([kind], BEHAVIOURS))
    # What a sandbox of this kind takes to start is no program's doing.
    problem, source = submission(kind, "dies")
    judge_of_tier.judge(problem, python(source))
    assert unpaid(judge_of_tier, named, deadline_s=DEADLINE_S) == {}


@pytest.mark.extended
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_deadline(judge_of_tier: Judge, kind: str) -> None:
    """What waits is ended by a wall clock limit of 12 s; one case of it is enough."""
    named = list(product([kind], sorted(BEHAVIOURS.keys() - WAITING)))
    assert unpaid(judge_of_tier, named) == {}
    named = list(product([kind], sorted(WAITING)))
    assert unpaid(judge_of_tier, named, WAITING_AT_ONCE, stop_at_first_failure=True) == {}
