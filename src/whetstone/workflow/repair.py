"""Several turns: a program that was refused goes back to the model, with the verdicts of its tests.

An episode is one sequence of tokens: the reply, what was said to it, the next reply, and so on. The model
is trained on what it wrote, by the reward of its last program.
"""

from __future__ import annotations

import asyncio

from whetstone.problem import Problem
from whetstone.sample import Group, Sample
from whetstone.settings import stream_seed
from whetstone.workflow.episode import Asked, ProgramJudge, group_of
from whetstone.workflow.feedback import feedback
from whetstone.workflow.prompt import Prompt
from whetstone.workflow.replies import EngineReplies, Reply
from whetstone.workflow.settings import WorkflowSection
from whetstone.workflow.shipped import RepairOptions
from whetstone.workflow.single_turn import SingleTurn


class Repair(SingleTurn):
    """A ``Conversation`` of up to ``turns`` replies. Its first one is that of ``SingleTurn``."""

    def __init__(self, settings: WorkflowSection, judge: ProgramJudge, options: RepairOptions) -> None:
        super().__init__(settings, judge)
        self._options = options

    def check(self, problem: Problem) -> None:
        """See Conversation: any problem will do."""

    async def groups(self, problem: Problem, asked: Asked) -> dict[str, Group]:
        """See Conversation. A sample's notes are its ``turns``, and whether its first and its last program
        were accepted (``first_accepted``, ``last_accepted``)."""
        [(name, replies)] = asked.replies.items()
        prompt = self.prompt(problem)
        prompt_ids, drawn = replies.draw(problem, prompt, n=asked.n, seed=asked.seed)
        asked.pace.enter(asked.n)
        async with asyncio.TaskGroup() as tasks:
            samples = {
                reply.index: tasks.create_task(self._talk(problem, prompt, prompt_ids, reply, replies, asked))
                async for reply in drawn
            }
        ordered = [samples[index].result() for index in sorted(samples)]
        return {name: group_of(problem, prompt_ids, ordered)}

    async def _talk(
        self,
        problem: Problem,
        prompt: Prompt,
        prompt_ids: list[int],
        first: Reply,
        replies: EngineReplies,
        asked: Asked,
    ) -> Sample:
        with asked.pace.seat():
            talk = latest = await self.sample(problem, first, **asked.options)
            turns = 1
            while turns < self._options.turns and _refused(latest):
                await asked.pace.turn(asked.draw, first.index)
                said = self._said(latest)
                before = [*prompt_ids, *talk.response_ids]
                seed = stream_seed("turn", asked.seed, first.index, turns)
                found = await replies.follow(prompt, before, said, seed=seed)
                if found is None:
                    break
                between, reply = found
                latest = await self.sample(problem, reply, **asked.options)
                talk = joined(talk, between, said, latest)
                turns += 1
        first_accepted = turns == 1 and _accepted(latest)
        notes = {
            "turns": float(turns),
            "first_accepted": float(first_accepted),
            "last_accepted": float(_accepted(latest)),
        }
        return talk.with_notes(notes, self._paid(talk.reward, turns))

    def _said(self, refused: Sample) -> str:
        assert refused.judgement is not None
        told = feedback(refused.judgement, detail=self._options.detail)
        return self._options.again.replace("{feedback}", told)

    def _paid(self, reward: float | None, turns: int) -> float | None:
        """The reward of the last program, less for every turn that it took. A penalty stays whole."""
        if reward is None or reward <= 0:
            return reward
        return reward * self._options.discount ** (turns - 1)


def joined(talk: Sample, between: list[int], said: str, reply: Sample) -> Sample:
    """A conversation with one more reply. What stands ``between`` is given, and of the version before it."""
    start = len(talk.response_ids)
    version = talk.versions[-1:] * len(between)
    return Sample(
        response_ids=[*talk.response_ids, *between, *reply.response_ids],
        logprobs=[*talk.logprobs, *[0.0] * len(between), *reply.logprobs],
        versions=[*talk.versions, *version, *reply.versions],
        finish_reason=reply.finish_reason,
        text=f"{talk.text}\n\n{said}\n\n{reply.text}",
        program=reply.program,
        judgement=reply.judgement,
        reward=reply.reward,
        given=[*talk.given, (start, start + len(between))],
    )


def _refused(sample: Sample) -> bool:
    """Whether there is a verdict that counts, against the program, of a reply that has ended by itself."""
    judgement = sample.judgement
    return (
        judgement is not None
        and judgement.score is not None
        and not judgement.accepted
        and sample.finish_reason == "stop"
        and bool(sample.response_ids)
    )


def _accepted(sample: Sample) -> bool:
    return sample.judgement is not None and sample.judgement.accepted
