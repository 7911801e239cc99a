"""How the group of a draw is sampled: alike by whoever does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whetstone.errors import UserError
from whetstone.flow.desk import Grant
from whetstone.flow.facts import facts_of, packed
from whetstone.flow.replica import Episode, Groups
from whetstone.problem import Problem
from whetstone.sample import Group
from whetstone.settings import stream_seed
from whetstone.workflow.episode import Asked, Workflow, run_groups
from whetstone.workflow.pace import Pace
from whetstone.workflow.replies import EngineReplies
from whetstone.workflow.shipped import POLICY


class GroupSampler:
    """Samples groups of ``n``; every random stream is fixed by the run's ``seed`` and the draw.

    ``replies``: of the run's model, or of its models by name. ``max_cases``: judge at most so many cases of a
    problem, chosen anew for each group; None: all. ``together``: later turns of the groups that are sampled
    at a time are asked together, so that the same bits come again.
    """

    def __init__(
        self,
        workflow: Workflow,
        replies: EngineReplies | Mapping[str, EngineReplies],
        n: int,
        seed: int,
        max_cases: int | None,
        *,
        together: bool = False,
    ) -> None:
        self._workflow = workflow
        self._replies = {POLICY: replies} if isinstance(replies, EngineReplies) else replies
        self._n, self._seed, self._max_cases = n, seed, max_cases
        self._pace = Pace(together=together)

    async def __call__(self, draw: int, problem: Problem) -> dict[str, Group]:
        """The group of each model. Raises UserError for a prompt that is too long."""
        options: dict[str, Any] = {}
        if self._max_cases is not None:
            # One subset for the group: siblings that met other cases would be compared by luck.
            subset_seed = stream_seed("cases", self._seed, draw)
            options = {"max_cases": self._max_cases, "subset_seed": subset_seed}
        seed = stream_seed("rollout", self._seed, draw)
        asked = Asked(self._replies, self._n, draw, seed, options, self._pace)
        return await run_groups(self._workflow, problem, asked)


def episodes(sampler: GroupSampler, problems: Mapping[str, Problem]) -> Episode:
    """The episodes of a replica that samples the groups of a run's models."""

    async def episode(grant: Grant) -> Groups:
        problem = problems.get(grant.problem)
        if problem is None:
            raise UserError(
                f"this replica has no problem {grant.problem}: its data are not those of the flow"
            )
        difficulty = str(problem.meta.get("difficulty") or "")
        groups = await sampler(grant.draw, problem)
        return {name: (facts_of(group, difficulty), packed(group)) for name, group in groups.items()}

    return episode
