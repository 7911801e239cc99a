"""An environment of several turns: a rejected program goes back to the model with the verdicts of its tests.

An episode is one sequence of tokens: reply, message, next reply, and so on. The model is trained on its own
tokens, by the reward of its last program.
"""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace
from pydantic import Field, field_validator

from whetstone.core.problem import Problem
from whetstone.core.settings import NonEmpty, Section
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.feedback import Detail, feedback
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn, sample_of


class RepairOptions(Section):
    """Rejected programs are repaired, with feedback from the tests.

    turns: the most replies of an episode.
    detail: ``cases`` tells which tests failed and how, ``verdict`` the verdict alone. Neither contains
        expected values.
    again: the message after a rejected program; ``{feedback}`` is filled in.
    discount: factor of a positive reward for each turn after the first.
    """

    turns: Annotated[int, Field(ge=2, le=16)] = 2
    detail: Detail = "cases"
    again: NonEmpty = "{feedback}\n\nThe program is not right yet. Mend it, and reply with all of it again."
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0

    @field_validator("again")
    @classmethod
    def _check_feedback(cls, again: str) -> str:
        if "{feedback}" not in again:
            raise ValueError("it must contain `{feedback}`: the model needs it to repair its program")
        return again


class Repair(SingleTurn):
    """Up to ``turns`` replies. The first reply is that of ``SingleTurn``.

    A sample's metrics are its ``turns``, and whether its first and its last program were accepted
    (``first_accepted``, ``last_accepted``).
    """

    Options = RepairOptions

    def __init__(self, settings: EnvironmentSection, options: RepairOptions) -> None:
        super().__init__(settings)
        self._options = options
        self.turns = options.turns
        self.needs_all_cases |= options.detail == "cases"

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        """See Environment."""
        conversation = await episode.begin()
        first = outcome = await self.score(episode, conversation.reply)
        while len(conversation.turns) < self.turns and outcome.rejected:
            reply = conversation.reply
            # A reply that was cut has used up its budget. An empty one leaves nothing to continue.
            if reply.finish_reason != "stop" or (reply.drawn is not None and not reply.drawn.token_ids):
                break
            assert outcome.judgement is not None
            text = feedback(outcome.judgement, detail=self._options.detail)
            again = await conversation.send(self._options.again.replace("{feedback}", text))
            if again is None:
                break
            outcome = await self.score(episode, again)
        turns = len(conversation.turns)
        metrics = {
            "turns": float(turns),
            "first_accepted": float(first.accepted is True),
            "last_accepted": float(outcome.accepted is True),
        }
        # A penalty is not discounted.
        if outcome.reward is not None and outcome.reward > 0:
            outcome = replace(outcome, reward=outcome.reward * self._options.discount ** (turns - 1))
        return Rollout({self.models[0]: [sample_of(conversation, outcome, metrics)]})
