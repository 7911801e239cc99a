"""The workflows that ship, by name, and their options. Torch-free."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from whetstone.settings import NonEmpty, Section
from whetstone.workflow.feedback import Detail

SINGLE_TURN = "single_turn"
REPAIR = "repair"


class RepairOptions(Section):
    """A refused program is mended, with feedback from the tests.

    turns: replies of an episode, at most. detail: ``cases`` tells which tests failed and how, ``verdict`` the
    verdict alone; expected values are in neither. again: what is said to a refused program; ``{feedback}`` is
    filled in. discount: each turn after the first multiplies a reward above 0 by it.
    """

    turns: Annotated[int, Field(ge=2, le=16)] = 2
    detail: Detail = "cases"
    again: NonEmpty = "{feedback}\n\nThe program is not right yet. Mend it, and reply with all of it again."
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0

    @field_validator("again")
    @classmethod
    def _tells(cls, again: str) -> str:
        if "{feedback}" not in again:
            raise ValueError("say where `{feedback}` stands: without it the model mends blindly")
        return again


OPTIONS: dict[str, type[Section]] = {REPAIR: RepairOptions}
"""The options of each workflow that has some."""

NAMES = (SINGLE_TURN, *OPTIONS)
