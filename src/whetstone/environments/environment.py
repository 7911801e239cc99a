"""The interface of an environment: how a problem becomes a rollout with a reward.

Training, evaluation and difficulty estimation run the same environment. So a policy is measured as it acts in
training, and an evaluation accepts exactly what the reward accepts.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from whetstone.core.problem import Problem
from whetstone.core.settings import Section
from whetstone.environments.episode import POLICY, Episode, ProgramJudge, Rollout
from whetstone.environments.prompt import Prompt


class Environment(ABC):
    """The rules of an episode. Subclasses define ``prompt`` and ``rollout``.

    An environment is created with the ``environment`` section of the recipe and its options. It is created
    before a run to check the recipe, so the constructor must be cheap; open resources at the first rollout,
    and free them in ``close``. Grouping, ordering, random streams and the scheduling of turns belong to the
    runner (``environments/runner.py``).
    """

    Options: ClassVar[type[Section] | None] = None
    """The class of the options, which the constructor gets as one object after the settings. None: the
    options are keyword arguments of the constructor."""

    models: tuple[str, ...] = (POLICY,)
    """The names of the models that an episode samples. An evaluation only has the first one."""

    turns: int = 1
    """The most replies of a model in a sample."""

    needs_all_cases: bool = False
    """Whether rewards or messages depend on single test cases, so that the judge must run all of them."""

    packages: ClassVar[tuple[str, ...]] = ()
    """Packages of the extra `serve` that its episodes need; a run is refused without them."""

    smoke_obstacle: str = ""
    """Why a run with random replies and some planted programs earns no reward to learn from, and what to set
    instead; empty if it does."""

    def longest_sample(self, max_tokens: int) -> int:
        """Return the most tokens that a model generates in a sample, for replies of ``max_tokens``.

        Length penalties and fixed denominators use this number.
        """
        return self.turns * max_tokens

    @abstractmethod
    def prompt(self, problem: Problem) -> Prompt | None:
        """Return the prompt with which every episode of a problem begins, or None if there is none.

        The runner samples the first replies of a group together. Raises UserError if the problem cannot be
        presented.
        """

    def check(self, problem: Problem) -> None:
        """Raise UserError for a problem that has no valid episodes.

        All training problems are checked before a run, and those without tests before an evaluation.
        """
        return

    def demonstration(self, problem: Problem, rng: random.Random) -> list[tuple[str, str]] | None:
        """Return an episode to imitate, as a role (``assistant``, ``user`` or ``tool``) and a text for each
        message; None if there is none.

        The episode follows ``prompt``. It begins and ends with a reply of the assistant, without the given
        prefix; the other messages are those that ``rollout`` would send. The warm-up of a model from scratch
        learns the replies (``warmup.writes: demonstrations``). Replies may be wrong, so that RL can improve
        the model. ``rng`` gives all random numbers.
        """
        return None

    @abstractmethod
    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        """Play one episode.

        A failed reply, or a failed judge, gives a sample with a reward of None, which is not trained on. An
        exception ends the run.
        """

    async def finish_group(
        self, problem: Problem, rollouts: Sequence[Rollout], judge: ProgramJudge
    ) -> Sequence[Rollout]:
        """Return the rollouts of a group, with rewards that depend on several of them. Not called in an
        evaluation."""
        return rollouts

    async def close(self) -> None:
        """Free what the rollouts opened."""
        return
