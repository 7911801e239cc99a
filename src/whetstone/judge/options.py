"""How programs are judged: one struct, whose fields are the options of a judge and of a single call alike."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from whetstone.errors import UserError, did_you_mean

HASH_SEED = 0
"""What Python programs make their hashes with, unless another one is asked for."""
_MOST_HASH_SEED = (1 << 32) - 1
_MOST_DEADLINE_S = 7 * 86400.0
_PLACE = re.compile(r" - at `\$\.(\w+)`$")


class JudgeOptions(Struct, frozen=True, kw_only=True):
    """Every option has a default; ``Judge(…)`` sets others for all programs, ``judge.submit(…)`` for one.

    stop_at_first_failure: run no case after one that failed.
    confirm_time_limit: run a case that hit a time limit once more before it counts.
    fork_per_case: a process for each case. Without, the cases of a Python program share one: several times
        cheaper, and marked (``Judgement.shared_process``); see ``judge.kinds.shared_process``.
    score_shared_interpreter: give a score to a judgement that could have been forged
        (``Judgement.shared_interpreter``), which otherwise has none.
    max_cases: judge only so many of the problem's cases; None judges all.
    subset_seed: which cases these are is a function of this seed and the problem's id alone, so all
        programs for a problem meet the same ones; ``CaseJudgement.index`` says which.
    hash_seed: what a Python program makes its hashes of text with; 0 is the same everywhere, so that a set
        of strings always has the same order. Each other one takes a fork-server more.
    priority: higher goes first among what waits; what has equal priority goes by deadline, then arrival.
    deadline_s: seconds from submission within which it must be judged; then what runs of it is stopped. Cases
        that failed count. The rest is TIME_LIMIT where the program took most of the time, and JUDGE_ERROR
        where the queue or other programs on the machine did.
    queued_s: seconds that it waited elsewhere before; they count as time in the queue.
    """

    stop_at_first_failure: bool = False
    confirm_time_limit: bool = True
    fork_per_case: bool = True
    score_shared_interpreter: bool = False
    max_cases: Annotated[int, Meta(ge=1)] | None = None
    subset_seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] = 0
    hash_seed: Annotated[int, Meta(ge=0, le=_MOST_HASH_SEED)] = HASH_SEED
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    deadline_s: Annotated[float, Meta(gt=0, le=_MOST_DEADLINE_S)] | None = None
    queued_s: Annotated[float, Meta(ge=0, le=_MOST_DEADLINE_S)] = 0.0

    def __post_init__(self) -> None:
        for name, seconds in (("deadline_s", self.deadline_s), ("queued_s", self.queued_s)):
            if seconds is not None and math.isnan(seconds):
                raise ValueError(f"`{name}` is not a number")


def queued_before(options: dict[str, Any]) -> float:
    """``queued_s`` of options that are not checked yet. Raises UserError for a value that does not fit."""
    given = {name: value for name, value in options.items() if name == "queued_s"}
    return options_with(JudgeOptions(), given).queued_s


def options_with(options: JudgeOptions, given: dict[str, Any]) -> JudgeOptions:
    """``options`` with those that are ``given`` in their place.

    Raises TypeError for a name that is none, as Python does, and UserError for a value that does not fit.
    """
    if not given:
        return options
    known = JudgeOptions.__struct_fields__
    if unknown := given.keys() - set(known):
        name = min(unknown)
        raise TypeError(f"unknown option `{name}`{did_you_mean(name, known)} (options: {', '.join(known)})")
    try:
        return msgspec.convert({**msgspec.structs.asdict(options), **given}, JudgeOptions)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        name, expected = (place[1], _PLACE.sub("", str(error))) if place else ("an option", str(error))
        raise UserError(f"{name} is {given.get(name)!r}: {expected[0].lower()}{expected[1:]}") from None
    except UnicodeEncodeError:  # a lone surrogate, over which msgspec cannot say that it wants no text
        name = next((name for name, value in given.items() if isinstance(value, str)), "an option")
        raise UserError(f"{name} is {given.get(name)!r}: options are numbers, True or False") from None
