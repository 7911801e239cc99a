"""What the single-turn episode promises: order, judging of every reply, and no reward where nobody judged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.environments.scripted import TOKENIZER, Says, played
from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, CallCase, CallTests, Problem, Program
from whetstone.core.sample import FinishReason, Group
from whetstone.core.verdict import Verdict
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.scratch import build_tokenizer
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn
from whetstone.judge import AsyncJudge

pytestmark = pytest.mark.process

PROBLEM = Problem(
    "t/double",
    "Double x.",
    CallTests([CallCase(expected=2 * x, args=[x]) for x in (0, 1, 5, -3)], function="f"),
    starter="def f(x):\n",
)
RIGHT = "```python\ndef f(x):\n    return 2 * x\n```"
HALF = "```python\ndef f(x):\n    return x if x else 0\n```"


class Ends(Says):
    """Says given replies, which end for a reason."""

    def __init__(self, *replies: str, reason: FinishReason = "stop") -> None:
        super().__init__(lambda text, index: replies[index])
        self.count, self.reason = len(replies), reason

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        async for completion in super().generate(request):
            yield replace(completion, finish_reason=self.reason)


def episode(
    engine: Ends, problem: Problem = PROBLEM, *, pay_forgeable: bool = False, **settings: Any
) -> Group:
    async def run() -> Group:
        async with AsyncJudge(workers=1, score_shared_interpreter=pay_forgeable) as judge:
            section = EnvironmentSection.model_validate({"chat": False, **settings})
            most = section.max_prompt_tokens
            # One without a chat template, for the setting that needs it.
            tokenizer = build_tokenizer(["def f(x):"], 300) if section.chat else TOKENIZER
            more: dict[str, Any] = {"judge": judge, "tokenizer": tokenizer, "max_prompt_tokens": most}
            return await played(SingleTurn(section), engine, problem, engine.count, **more)

    return asyncio.run(run())


def test_samples_stand_in_the_order_of_their_streams_with_their_own_verdicts() -> None:
    group = episode(Ends(RIGHT, HALF, "no code here at all, sorry"))
    verdicts = [s.judgement.verdict for s in group.samples if s.judgement]
    assert verdicts == [Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.NO_CODE]
    assert [s.reward for s in group.samples] == [1.0, 0.0, 0.0]
    assert all(set(s.versions) == {3} for s in group.samples)


def test_fraction_is_the_share_of_cases() -> None:
    group = episode(Ends(RIGHT, HALF), reward="fraction")
    assert group.samples[0].reward == 1.0
    assert group.samples[1].reward == 0.25


def test_an_aborted_reply_has_no_reward_rather_than_zero() -> None:
    group = episode(Ends(RIGHT, reason="abort"))
    assert group.samples[0].reward is None
    assert group.samples[0].judgement is None


# No proxy has the code object of a function.
FORGEABLE = Problem(
    "t/forgeable",
    "Double x.",
    AssertTests(asserts=["assert f.__code__.co_argcount == 1", "assert f(2) == 4"]),
    references=[Program("python", "def f(x):\n    return 2 * x\n")],
)


def test_a_verdict_that_could_be_forged_has_no_reward_unless_that_is_allowed() -> None:
    replies = [RIGHT, "```python\ndef f(x, y=0):\n    return 2 * x\n```"]
    for reward in ("all", "fraction"):
        samples = episode(Ends(*replies), FORGEABLE, reward=reward).samples
        assert [s.reward for s in samples] == [None, None]
        verdicts = [s.judgement.verdict for s in samples if s.judgement]
        assert verdicts == [Verdict.ACCEPTED, Verdict.WRONG_ANSWER]
        assert {s.judgement.unpaid for s in samples if s.judgement} == {"shared_interpreter"}
    paid = episode(Ends(*replies), FORGEABLE, pay_forgeable=True).samples
    assert [s.reward for s in paid] == [1.0, 0.0]


def test_the_starter_in_the_prefix_is_part_of_prompt_and_program() -> None:
    body = "\n    return 2 * x\n```"
    group = episode(Ends(body), prefix="```python\n{starter}")
    assert group.samples[0].program == "def f(x):\n    return 2 * x\n"
    assert group.samples[0].reward == 1.0
    assert TOKENIZER.decode(group.prompt_ids).endswith("```python\ndef f(x):")


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        (f"<think>hm</think><answer>{RIGHT}</answer>", 1.0),
        (f"<think>hm</think>{RIGHT}", 0.0),
        (f"<answer>{RIGHT}</answer>", 0.0),
        (f"<think>{RIGHT}", 0.0),
    ],
)
def test_think_answer_wants_the_whole_form(reply: str, reward: float) -> None:
    assert episode(Ends(reply), answer_format="think_answer").samples[0].reward == reward


def test_a_thinking_reply_is_judged_by_its_text_after_the_thinking() -> None:
    wrong = "```python\ndef f(x):\n    return 0\n```"
    assert episode(Ends(f"<think>{wrong}</think>{RIGHT}")).samples[0].reward == 1.0


def test_prompts_that_cannot_be_made_say_which_key_to_change() -> None:
    settings: dict[str, Any]
    for settings, words in [
        ({"prompt": "{starter}", "chat": False}, "`environment.prompt` shows {starter} alone"),
        ({"max_prompt_tokens": 2, "chat": False}, "environment.max_prompt_tokens"),
        ({"chat": True}, "environment.chat: false"),
    ]:
        with pytest.raises(UserError, match=words):
            episode(Ends(RIGHT), **settings)
