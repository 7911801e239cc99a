"""Samples the group of a draw. The result does not depend on which process samples it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whetstone.algorithm.algorithm import Algorithm
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.core.sample import Group
from whetstone.core.settings import stream_seed
from whetstone.environments.environment import Environment
from whetstone.environments.episode import ProgramJudge
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import RolloutRequest, run_groups
from whetstone.environments.turn_barrier import TurnBarrier
from whetstone.rollout.group_facts import encode_group, facts_of
from whetstone.rollout.replica import Episode, Groups, SamplingProgress
from whetstone.rollout.scheduler import LeaseGrant


class GroupSampler:
    """Samples groups of ``n`` replies; the run's ``seed`` and the draw fix every random stream.

    replies: of each model by name. max_cases: judge at most this many cases of a
    problem, chosen anew for each group; None: all. batch_turns: submit later turns of concurrent groups
    together, so that a repeated run gives the same bits.
    """

    def __init__(
        self,
        environment: Environment,
        judge: ProgramJudge,
        replies: Mapping[str, EngineReplies],
        n: int,
        seed: int,
        max_cases: int | None,
        *,
        batch_turns: bool = False,
    ) -> None:
        self._environment, self._judge, self._replies = environment, judge, replies
        self._n, self._seed, self._max_cases = n, seed, max_cases
        self._barrier = TurnBarrier(synchronized=batch_turns)

    async def __call__(self, draw: int, problem: Problem, progress: SamplingProgress) -> dict[str, Group]:
        """Return the group of each model. Raises UserError for a prompt that is too long.

        ``progress`` receives what each model has generated so far, including what the environment does not
        use.
        """
        options: dict[str, Any] = {}
        if self._max_cases is not None:
            # All samples of a group are judged on the same cases, or their rewards could not be compared.
            subset_seed = stream_seed("cases", self._seed, draw)
            options = {"max_cases": self._max_cases, "subset_seed": subset_seed}
        # By the draw, so that a prompt gets the same replies on any replica.
        seed = stream_seed("rollout", self._seed, draw)
        tracked = {name: each.tracked() for name, each in self._replies.items()}
        progress.update({name: its for name, (_, its) in tracked.items()})
        replies = {name: each for name, (each, _) in tracked.items()}
        request = RolloutRequest(replies, self._judge, self._n, draw, seed, options, self._barrier)
        return await run_groups(self._environment, problem, request)


def episodes(
    sampler: GroupSampler, problems: Mapping[str, Problem], specs: Mapping[str, Algorithm]
) -> Episode:
    """Return the function that samples the groups of a lease on a replica. ``specs``: how each model is
    trained."""

    async def episode(grant: LeaseGrant, progress: SamplingProgress) -> Groups:
        problem = problems.get(grant.problem)
        if problem is None:
            raise UserError(
                f"this replica has no problem {grant.problem}: start it with the same data files as the flow"
            )
        difficulty = str(problem.meta.get("difficulty") or "")
        groups = await sampler(grant.draw, problem, progress)
        return {
            name: (facts_of(group, specs[name], difficulty), encode_group(group))
            for name, group in groups.items()
        }

    return episode
