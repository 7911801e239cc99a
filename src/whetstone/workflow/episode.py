"""What an episode is: a problem is put to a model, and each reply becomes a sample with verdict and reward.

Training and evaluation both go by a ``Workflow``, so that a run's evaluation accepts what its reward pays.
The flow adds groups and batches, evaluation adds waves, folders and tallies.

A workflow with more than one turn, or more than one model, is a ``Conversation``: it draws the groups of a
problem itself. Evaluation then measures its first replies, by the same ``prompt`` and ``sample``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from whetstone.problem import Problem, Program
from whetstone.sample import Group, Sample
from whetstone.verdict import Judgement
from whetstone.workflow.pace import Pace
from whetstone.workflow.prompt import Prompt
from whetstone.workflow.replies import EngineReplies, Reply


class ProgramJudge(Protocol):
    """What an episode needs of a judge: an ``AsyncJudge``, or whatever stands for one."""

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        """The verdict on one program; NO_CODE for a blank one."""
        ...


class Workflow(Protocol):
    """The rules of an episode."""

    def prompt(self, problem: Problem) -> Prompt:
        """The problem as it is put to the model. Raises UserError where that cannot be."""
        ...

    async def sample(self, problem: Problem, reply: Reply, **options: Any) -> Sample:
        """What a reply is worth: its program, the verdict on it, the reward. No verdict on a failed reply."""
        ...


@dataclass(frozen=True)
class Asked:
    """How the groups of a problem are to be drawn.

    replies: those who reply, by the names of models. n: the replies to the problem. draw: its number in the
    run. seed: fixes all random streams. options: the same for every judgement (see ``JudgeOptions``).
    """

    replies: Mapping[str, EngineReplies]
    n: int
    draw: int = 0
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pace: Pace = field(default_factory=Pace)


@runtime_checkable
class Conversation(Protocol):
    """A workflow that has more to ask than a prompt."""

    def check(self, problem: Problem) -> None:
        """Raise UserError for a problem to train on that there can be no episodes of."""
        ...

    async def groups(self, problem: Problem, asked: Asked) -> dict[str, Group]:
        """The group of each model of ``asked.replies``. Raises UserError for a prompt that is too long.

        Later turns are asked as ``asked.pace`` says.
        """
        ...


async def run_groups(workflow: Workflow, problem: Problem, asked: Asked) -> dict[str, Group]:
    """The group of each model: drawn by the workflow itself, or ``n`` replies to its prompt."""
    if isinstance(workflow, Conversation):
        return await workflow.groups(problem, asked)
    [(name, replies)] = asked.replies.items()
    drawn = run_group(workflow, replies, problem, n=asked.n, seed=asked.seed, options=dict(asked.options))
    return {name: await drawn}


async def run_group(
    workflow: Workflow,
    replies: EngineReplies,
    problem: Problem,
    *,
    n: int,
    seed: int,
    options: dict[str, Any],
) -> Group:
    """Draw ``n`` replies and judge each while the others are still being written.

    The group's samples stand in the order of their random streams, whatever order they end in. All are judged
    by the same ``options`` (see ``JudgeOptions``). Raises UserError for a prompt that is too long.
    """
    prompt_ids, drawn = replies.draw(problem, workflow.prompt(problem), n=n, seed=seed)
    async with asyncio.TaskGroup() as tasks:
        samples = {
            reply.index: tasks.create_task(workflow.sample(problem, reply, **options))
            async for reply in drawn
        }
    ordered = [samples[index].result() for index in sorted(samples)]
    return group_of(problem, prompt_ids, ordered)


def group_of(problem: Problem, prompt_ids: list[int], samples: list[Sample]) -> Group:
    """The group of a problem's samples."""
    return Group(problem.id, prompt_ids, samples, {"source": problem.source})
