"""How the group of a draw is sampled: alike by whoever does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whetstone.errors import UserError
from whetstone.flow.desk import Grant
from whetstone.flow.facts import facts_of, packed
from whetstone.flow.replica import Episode, Groups
from whetstone.flow.source import stream_seed
from whetstone.problem import Problem
from whetstone.sample import Group
from whetstone.workflow.episode import Workflow, run_group
from whetstone.workflow.replies import EngineReplies


class GroupSampler:
    """Samples groups of ``n``; every random stream is fixed by the run's ``seed`` and the draw.

    ``max_cases``: judge at most so many cases of a problem, chosen anew for each group; None: all.
    """

    def __init__(
        self, workflow: Workflow, replies: EngineReplies, n: int, seed: int, max_cases: int | None
    ) -> None:
        self._workflow, self._replies = workflow, replies
        self._n, self._seed, self._max_cases = n, seed, max_cases

    async def __call__(self, draw: int, problem: Problem) -> Group:
        """The group of a draw. Raises UserError for a prompt that is too long."""
        options: dict[str, Any] = {}
        if self._max_cases is not None:
            # One subset for the group: siblings that met other cases would be compared by luck.
            subset_seed = stream_seed("cases", self._seed, draw)
            options = {"max_cases": self._max_cases, "subset_seed": subset_seed}
        return await run_group(
            self._workflow,
            self._replies,
            problem,
            n=self._n,
            seed=stream_seed("rollout", self._seed, draw),
            options=options,
        )


def episodes(sampler: GroupSampler, problems: Mapping[str, Problem], model: str = "policy") -> Episode:
    """The episodes of a replica that samples groups of one model."""

    async def episode(grant: Grant) -> Groups:
        problem = problems.get(grant.problem)
        if problem is None:
            raise UserError(
                f"this replica has no problem {grant.problem}: its data are not those of the flow"
            )
        group = await sampler(grant.draw, problem)
        return {model: (facts_of(group, str(problem.meta.get("difficulty") or "")), packed(group))}

    return episode
