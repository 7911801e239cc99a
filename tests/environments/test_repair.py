"""Programs that go back to the model: what it sees of the tests, what it is trained on, what it earns."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.environments.scripted import TOKENIZER, Says, in_turn, played
from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Compare,
    InteractiveCase,
    InteractiveTests,
    Limits,
    Problem,
    Program,
    PythonChecker,
    PythonInteractor,
    StdinCase,
    StdinTests,
)
from whetstone.core.sample import Group
from whetstone.core.settings import read_settings
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.environments.feedback import feedback
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.turn_barrier import TurnBarrier
from whetstone.judge import AsyncJudge
from whetstone.run.recipe import load_recipe

SECRET = "7391846"
LIMITS = Limits(cpu_s=20.0, memory_mb=256, output_mb=8)
PROBLEMS = [
    Problem("stdin", "s", StdinTests([StdinCase("", "5"), StdinCase("4", SECRET)]), limits=LIMITS),
    Problem("exact", "s", StdinTests([StdinCase("4", SECRET)]), compare=Compare(mode="exact"), limits=LIMITS),
    Problem(
        "checker",
        "s",
        StdinTests([StdinCase("4", SECRET)]),
        checker=PythonChecker("def check(input, output, expected):\n    return output.strip() == expected\n"),
        limits=LIMITS,
    ),
    Problem("call", "s", CallTests([CallCase(int(SECRET), [4])], "f"), limits=LIMITS),
    Problem("assert", "s", AssertTests(asserts=[f"assert f(4) == {SECRET}"]), limits=LIMITS),
    Problem(
        "check",
        "s",
        AssertTests(check=f"def check(f):\n    assert f(4) == {SECRET}, '{SECRET}'\n", entry_point="f"),
        limits=LIMITS,
    ),
    Problem(
        "unittest",
        "s",
        AssertTests(
            unittest="import unittest\nclass T(unittest.TestCase):\n"
            f"    def test_f(self):\n        self.assertEqual(f(4), {SECRET})\n"
        ),
        limits=LIMITS,
    ),
    Problem(
        "interactive",
        "s",
        InteractiveTests(
            [InteractiveCase("4", SECRET)],
            PythonInteractor(
                "def interact(input, answer, read, write):\n    write('4\\n')\n    return read() == answer\n"
            ),
        ),
        limits=LIMITS,
    ),
]
WRONG = {
    "wrong_answer": "def f(x):\n    return 5\nprint(5)",
    "runtime_error": "def f(x):\n    return [][x]\nimport sys\nsys.exit(str([][4]))",
    "compile_error": "def f(x:\n    return",
    "no_code": "",
}
# The other limits are generous, so that a program meets only the one that it is meant to meet.
BEYOND_LIMITS = {
    "while True: pass": replace(LIMITS, cpu_s=0.2),
    "print('y' * (3 << 20))": replace(LIMITS, output_mb=1),
    "print(len(bytearray(b'1') * (1 << 30)))": replace(LIMITS, memory_mb=64),
}


def drawn(engine: Says, problem: Problem, n: int, judge: AsyncJudge | None = None, **more: Any) -> Any:
    """The group of a repair episode under the real judge; to be awaited where the judge is given."""
    section = EnvironmentSection.model_validate(
        {"kind": "repair", "prompt": "{problem}", "extraction": "whole", **more}
    )

    async def run(judge: AsyncJudge) -> Group:
        return await played(section.build(), engine, problem, n, judge=judge)

    async def judged() -> Group:
        async with AsyncJudge(1, stop_at_first_failure=not section.needs_all_cases) as judge:
            return await run(judge)

    return asyncio.run(judged()) if judge is None else run(judge)


@pytest.mark.process
def test_no_expected_value_reaches_the_model() -> None:
    """For every kind of tests, and programs that come to every verdict."""
    seen = Counter[Verdict]()

    async def run() -> None:
        async with AsyncJudge(1) as judge:
            tried = [(problem, [*WRONG.values()]) for problem in PROBLEMS]
            tried += [(replace(PROBLEMS[0], limits=most), [each]) for each, most in BEYOND_LIMITS.items()]
            for problem, programs in tried:
                engine = Says(in_turn(*([program, ""] for program in programs)))
                group = await drawn(engine, problem, len(programs), judge)
                assert len(engine.asked) == 1 + len(programs)
                assert not [text for text in engine.asked if SECRET in text]
                for program, sample in zip(programs, group.samples, strict=True):
                    assert SECRET not in sample.text
                    assert sample.metrics["turns"] == 2
                    verdict = (await judge.judge(problem, Program("python", program))).verdict
                    seen[verdict] += 1

    asyncio.run(run())
    assert set(seen) == set(Verdict) - {Verdict.ACCEPTED, Verdict.JUDGE_ERROR}


_NOISE = st.text(alphabet="0123456789 eTx:\n", max_size=20)
_CASES = st.lists(st.tuples(st.sampled_from(list(Verdict)), _NOISE), min_size=1, max_size=12)


@given(_CASES, _NOISE, st.sampled_from(["cases", "verdict"]))
def test_feedback_is_a_function_of_verdicts_alone(cases: Any, noise: str, detail: Any) -> None:
    """Whatever the reasons say, of each case and of the whole: the same words."""

    def told(quote: str) -> str:
        judged = [
            CaseJudgement(verdict, reason=f"{reason}{quote}", index=i)
            for i, (verdict, reason) in enumerate(cases)
        ]
        first = next((v for v, _ in cases if v is not Verdict.ACCEPTED), Verdict.ACCEPTED)
        score = None if first is Verdict.JUDGE_ERROR else 0.5
        return feedback(Judgement(first, judged, score, "root", reason=f"{noise}{quote}"), detail=detail)

    assert told("") == told(f"\nexpected {SECRET}") == told(f"{SECRET} ValueErrors: {SECRET}")


def test_feedback_names_the_class_of_an_exception_without_its_text() -> None:
    judged = [CaseJudgement(Verdict.RUNTIME_ERROR, reason=f"ValueError: {SECRET}", index=2)]
    assert feedback(Judgement(Verdict.RUNTIME_ERROR, judged, 0.0, "root")) == (
        "Tests: 0 passed, 1 failed.\nTest 3: the program failed (ValueError)."
    )
    own = [CaseJudgement(Verdict.RUNTIME_ERROR, reason=f"E{SECRET}: x", index=0)]
    assert SECRET not in feedback(Judgement(Verdict.RUNTIME_ERROR, own, 0.0, "root"))


RIGHT = "def f(x):\n    return 7391846"


@pytest.mark.process
@pytest.mark.parametrize("chat", [True, False])
def test_only_generated_tokens_have_a_loss(chat: bool) -> None:
    problem = PROBLEMS[3]
    said = [["x = 1", RIGHT], [RIGHT], ["", "y = 2"]]
    script = (
        in_turn(*said)
        if chat
        else lambda text, i: said[i][0] if i else said[0]["7" in text or "Mend" in text]
    )
    if not chat:
        said = said[:1]
    engine, options = Says(script), {"discount": 0.5, "again": "{feedback} Mend it."}
    group = drawn(engine, problem, len(said), chat=chat, options=options)
    for sample, replies in zip(group.samples, said, strict=True):
        wrote = sample.written()
        end = TOKENIZER.eos_token
        own = [i for i, w in zip(sample.response_ids, wrote, strict=True) if w]
        assert TOKENIZER.decode(own) == "".join(reply + end for reply in replies)
        assert {p for p, w in zip(sample.logprobs, wrote, strict=True) if w} == {-1.0}
        assert not any(p for p, w in zip(sample.logprobs, wrote, strict=True) if not w)
        assert set(sample.versions) == {3}
        if len(replies) > 1:
            # The second turn was asked with exactly the tokens that the sample holds before it.
            [(_, stop)] = sample.given
            assert TOKENIZER.decode([*group.prompt_ids, *sample.response_ids[:stop]]) in engine.asked
            assert not chat or TOKENIZER.decode(sample.response_ids).count(end) == 2
    assert [s.reward for s in group.samples] == [0.5, 1.0, 0.0][: len(said)]
    assert group.samples[0].metrics == {"turns": 2.0, "first_accepted": 0.0, "last_accepted": 1.0}


@pytest.mark.process
def test_a_conversation_ends_where_the_context_does() -> None:
    engine = Says(in_turn(["x = 1", "y"], ["y = 2", "y"]), context=60)
    group = drawn(engine, PROBLEMS[3], 2)
    assert [(s.metrics["turns"], s.given, s.reward) for s in group.samples] == [(1.0, [], 0.0)] * 2


def test_later_turns_are_asked_together_and_in_order() -> None:
    """Of conversations that reach them at any times; some are over before, and one is cancelled."""

    async def run(delays: tuple[int, ...]) -> list[tuple[int, int]]:
        pace, asked = TurnBarrier(synchronized=True), list[tuple[int, int]]()
        pace.register(len(delays))

        async def talk(place: int, delay: int) -> None:
            with pace.participant():
                for turn in range(1 + place % 3):
                    for _ in range(delay):
                        await asyncio.sleep(0)
                    await pace.wait(place)
                    asked.append((turn, place))

        tasks = [asyncio.create_task(talk(*one)) for one in enumerate(delays)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks, return_exceptions=True)
        return asked

    for delays in itertools.permutations([1, 2, 5, 9, 0]):
        asked = asyncio.run(run(delays))
        assert asked == sorted(asked)
        assert {place for _, place in asked} >= {0, 1, 2, 4}


def test_options_that_cannot_be_are_refused_with_their_bounds() -> None:
    for options, words in [
        ({"turns": 1}, "`options.turns`: Input should be greater than or equal to 2"),
        ({"turn": 3}, "unknown key `options.turn`; did you mean `options.turns`"),
        ({"again": "Mend it."}, "must contain `{feedback}`"),
    ]:
        with pytest.raises(UserError, match=words.replace("{", r"\{").split(";")[0]):
            read_settings(EnvironmentSection, {"kind": "repair", "options": options})
    with pytest.raises(UserError, match="has no options"):
        load_recipe("recipes/tiny.yaml", ["environment.options={turns: 2}"])
