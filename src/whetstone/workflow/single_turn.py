"""The single-turn code episode: one prompt, n replies, each judged as soon as it ends."""

from __future__ import annotations

import asyncio
import re
from typing import Protocol

from whetstone.engine.base import Completion, Engine, GenerationRequest, SamplingParams
from whetstone.judge.extract import extract_program, strip_thinking
from whetstone.problem import Problem, Program
from whetstone.recipe import WorkflowSection
from whetstone.sample import Group, Sample
from whetstone.verdict import Judgement, Verdict
from whetstone.workflow.prompt import Tokenizer, prompt_ids, reply_prefix

_THINK_ANSWER = re.compile(r"\s*<think>.*?</think>\s*<answer>(?P<answer>.*)</answer>\s*", re.DOTALL)


class ProgramJudge(Protocol):
    """What an episode needs of a judge: local, or over HTTP."""

    async def judge(self, problem: Problem, program: Program) -> Judgement:
        """The verdict on one program."""
        ...


def program_of(problem: Problem, settings: WorkflowSection, reply: str) -> str | None:
    """The program in a reply (prefix excluded), or None when its form is broken or it has none."""
    text: str | None = reply_prefix(problem, settings) + reply
    if settings.answer_format == "think_answer":
        found = _THINK_ANSWER.fullmatch(text)
        text = found["answer"] if found else None
    else:
        text = strip_thinking(text)
    return None if text is None else extract_program(text, settings.extraction, problem.language)


class SingleTurn:
    """Prompts a model once per problem and rewards each reply by its judgement."""

    def __init__(self, settings: WorkflowSection, tokenizer: Tokenizer) -> None:
        self._settings = settings
        self._tokenizer = tokenizer

    def prompt_ids(self, problem: Problem) -> list[int]:
        """The problem's prompt as token ids; see ``workflow.prompt``."""
        return prompt_ids(problem, self._settings, self._tokenizer)

    async def run(
        self,
        problem: Problem,
        engine: Engine,
        judge: ProgramJudge,
        *,
        params: SamplingParams,
        n: int,
        seed: int,
    ) -> Group:
        """Draw ``n`` replies and judge each while the others are still being written.

        The group's samples stand in the order of their random streams, whatever order they end in.
        """
        prompt = self.prompt_ids(problem)
        request = GenerationRequest(prompt_ids=prompt, params=params, n=n, seed=seed)
        async with asyncio.TaskGroup() as tasks:
            pending = [
                (completion.index, tasks.create_task(self._finish(problem, completion, judge)))
                async for completion in engine.generate(request)
            ]
        samples = [task.result() for _, task in sorted(pending, key=lambda item: item[0])]
        return Group(problem_id=problem.id, prompt_ids=prompt, samples=samples)

    async def _finish(self, problem: Problem, completion: Completion, judge: ProgramJudge) -> Sample:
        text = self._tokenizer.decode(completion.token_ids, skip_special_tokens=True)
        program = program_of(problem, self._settings, text)
        judgement = None
        if completion.finish_reason != "abort":
            judgement = await judge.judge(problem, Program(problem.language, program or ""))
        return Sample(
            response_ids=completion.token_ids,
            logprobs=completion.logprobs,
            versions=completion.versions,
            finish_reason=completion.finish_reason,
            text=text,
            program=program,
            judgement=judgement,
            reward=self._reward(judgement),
        )

    def _reward(self, judgement: Judgement | None) -> float | None:
        """None where nothing was judged (an aborted reply, a failed judge): never a zero."""
        if judgement is None or judgement.verdict is Verdict.JUDGE_ERROR:
            return None
        return judgement.score if self._settings.reward == "fraction" else float(judgement.accepted)
