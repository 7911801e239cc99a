"""The usage of an evaluation: tokens, time and cost. It is stored apart from the result."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import write_file
from whetstone.evaluate.results import Shares

USAGE_FILE = "usage.json"


class Prices(Struct, frozen=True):
    """The price of a million tokens read, and of a million written, in any currency."""

    read: float
    written: float


class EvaluationUsage(Struct, frozen=True):
    """The usage of an evaluation over all its runs.

    tokens: written tokens, as counted by the writer of the replies, without failed attempts.
    prompt_tokens: read tokens, once for each reply; None if not counted.
    seconds: wall-clock time of finished and interrupted runs.
    cost: None without prices or without token counts.
    """

    tokens: int
    prompt_tokens: int | None
    seconds: float
    cost: float | None = None

    @property
    def line(self) -> str:
        """The usage as text."""
        read = "" if self.prompt_tokens is None else f" and {self.prompt_tokens:,} read"
        cost = "" if self.cost is None else f"; they cost {self.cost:,.2f}"
        return f"{self.tokens:,} tokens written{read} in {_duration(self.seconds)}{cost}"


def usage_of(shares: Shares, seconds: float, prices: Prices | None = None) -> EvaluationUsage:
    """Return the usage of an evaluation. ``seconds`` is the sum over all its runs."""
    read, cost = shares.prompt_tokens, None
    if prices is not None and shares.tokens and read is not None:
        cost = (read * prices.read + shares.tokens * prices.written) / 1e6
    return EvaluationUsage(shares.tokens, read, seconds, cost)


def add_seconds(folder: Path, seconds: float) -> float:
    """Add the time of a run to that in an evaluation's folder, and return the sum."""
    total = seconds_in(folder) + seconds
    write_file(folder / USAGE_FILE, [msgspec.json.encode({"seconds": round(total, 3)}) + b"\n"])
    return total


def seconds_in(folder: Path) -> float:
    """Return the time of all runs of an evaluation's folder, in seconds."""
    try:
        return msgspec.json.decode((folder / USAGE_FILE).read_bytes(), type=dict[str, float])["seconds"]
    except FileNotFoundError:
        return 0.0
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise UserError(f"{folder / USAGE_FILE}: not written by `whetstone eval`: {error}") from None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
