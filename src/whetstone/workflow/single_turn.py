"""The single-turn code episode: one prompt, and a program in the reply that is judged."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from whetstone.judge.extract import extract_program, names_called, strip_thinking
from whetstone.problem import Problem, Program
from whetstone.sample import Sample
from whetstone.verdict import Judgement, Verdict
from whetstone.workflow.assemble import assemble
from whetstone.workflow.episode import ProgramJudge
from whetstone.workflow.own import own_reward
from whetstone.workflow.prompt import Prompt, prompt_of, reply_prefix
from whetstone.workflow.replies import Reply
from whetstone.workflow.settings import Reward, WorkflowSection

_ANSWER_NEXT = re.compile(r"\s*+<answer>")


def program_of(problem: Problem, settings: WorkflowSection, reply: str) -> str | None:
    """The program to judge for a reply (prefix excluded), or None when its form is broken or it has none.

    Where replies continue the problem's starter, it is completed by it; see ``workflow.assemble``.
    """
    text: str | None = reply_prefix(problem, settings) + reply
    text = _think_answer(text) if settings.answer_format == "think_answer" else strip_thinking(text)
    if text is None:
        return None
    code = extract_program(text, settings.extraction, problem.language, names_called(problem))
    return None if code is None else assemble(problem, code)


def _think_answer(text: str) -> str | None:
    """The answer of ``<think>…</think> <answer>…</answer>`` with nothing around it; None for another form."""
    text = text.strip()
    if not (text.startswith("<think>") and text.endswith("</answer>")):
        return None
    at = len("<think>")
    while (end := text.find("</think>", at)) >= 0:
        # The first closing tag that an answer follows: the thinking may quote others.
        at = end + len("</think>")
        if answer := _ANSWER_NEXT.match(text, at):
            last = len(text) - len("</answer>")
            return text[answer.end() : last] if answer.end() <= last else None
    return None


class SingleTurn:
    """A ``Workflow`` that rewards each reply by the judgement of its program.

    Other rules for the program of a reply, or for its judging, are a subclass with another ``program_of`` or
    ``judge``.
    """

    def __init__(self, settings: WorkflowSection, judge: ProgramJudge) -> None:
        self._settings = settings
        self._judge = judge

    def prompt(self, problem: Problem) -> Prompt:
        """See Workflow."""
        return prompt_of(problem, self._settings)

    def program_of(self, problem: Problem, reply: str) -> str | None:
        """The program to judge for a reply (prefix excluded, thinking included); None when it has none."""
        return program_of(problem, self._settings, reply)

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        """The verdict on that program; NO_CODE for a blank one."""
        return await self._judge.judge(problem, program, **options)

    async def sample(self, problem: Problem, reply: Reply, **options: Any) -> Sample:
        """See Workflow. A reply without a program is judged too, as a blank one."""
        program: str | None = None
        judgement: Judgement | None = None
        if reply.finish_reason != "failed":
            # A long reply takes a tenth of a second. A thread keeps the event loop free for other requests.
            program = await asyncio.to_thread(self.program_of, problem, reply.text)
            judgement = await self.judge(problem, Program(problem.language, program or ""), **options)
        reward = reward_of(problem, reply.text, judgement, self._settings.reward)
        return sample_of(reply, program, judgement, reward)


def sample_of(reply: Reply, program: str | None, judgement: Judgement | None, reward: float | None) -> Sample:
    """The sample of a reply, with what was made of it."""
    drawn = reply.drawn
    return Sample(
        response_ids=drawn.token_ids if drawn else [],
        logprobs=drawn.logprobs if drawn else [],
        versions=drawn.versions if drawn else [],
        finish_reason="abort" if reply.finish_reason == "failed" else reply.finish_reason,
        text=reply.text,
        program=program,
        judgement=judgement,
        reward=reward,
    )


def reward_of(problem: Problem, reply: str, judgement: Judgement | None, rule: Reward) -> float | None:
    """What a reply is worth; None where none counts (a failed reply, a failed judge, a forgeable one)."""
    if judgement is None or judgement.score is None:
        return None
    if rule == "fraction":
        return judgement.score
    if rule == "all":
        return float(judgement.accepted)
    if isinstance(rule, str):
        return own_reward(rule, problem, reply, judgement)
    if judgement.verdict is Verdict.NO_CODE:
        return rule.bad_format
    return rule.accepted if judgement.accepted else rule.failed
