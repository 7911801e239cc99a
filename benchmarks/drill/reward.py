"""An environment whose reward is a table of another judge's answers for each problem and program."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from whetstone.environments.conversation import Reply
from whetstone.environments.episode import Episode
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import Outcome, SingleTurn


class AnswersOfAnotherJudge(SingleTurn):
    """``answers``: a JSON file, by problem and program: 1, 0, or null if the judge had no verdict."""

    def __init__(self, settings: EnvironmentSection, answers: str) -> None:
        super().__init__(settings)
        self._answers = _read(answers)

    async def score(self, episode: Episode, reply: Reply) -> Outcome:
        """Look the answer up. A reply that is no program of the vocabulary has reward 0."""
        program = reply.text
        answer = self._answers[episode.problem.id].get(program, 0)
        reward = None if answer is None else float(answer)
        return Outcome(program=program, reward=reward, accepted=None if answer is None else bool(answer))


@cache
def _read(path: str) -> dict[str, dict[str, int | None]]:
    return json.loads(Path(path).read_text(encoding="utf-8"))
