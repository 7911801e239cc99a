"""TRL: a chat in ``prompt``, and the whole problem in ``problem``, which reward functions are given.

GRPOTrainer and RLOOTrainer (read in TRL 1.16.0) pass every other column to each reward function as a list
under the column's name, so a reward is a few lines around whetstone's judge (docs/data.md has them). It
returns None where the judge failed: that takes a reply out of the mean instead of scoring it 0.
"""

from __future__ import annotations

import pyarrow as pa

from whetstone.data.layouts.layout import CHAT, Layout, Row, chat, whole
from whetstone.problem import Problem


def _row(problem: Problem, split: str, index: int) -> Row:
    return {"prompt": chat(problem), "id": problem.id, "source": problem.source, "problem": whole(problem)}


TRL = Layout(
    name="trl",
    title="TRL's GRPOTrainer, the whole problem in a column for the reward function",
    schema=pa.schema(
        {"prompt": CHAT, "id": pa.string(), "source": pa.string(), "problem": pa.string()},
    ),
    row=_row,
    carries="everything",
    way_out="",
)
