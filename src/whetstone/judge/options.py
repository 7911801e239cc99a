"""The options of judging: one struct for the options of a judge and of a single call."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from whetstone.core.errors import UserError, did_you_mean

# The default PYTHONHASHSEED of Python programs.
HASH_SEED = 0
_MAX_HASH_SEED = (1 << 32) - 1
_MAX_DEADLINE_S = 7 * 86400.0
_PLACE = re.compile(r" - at `\$\.(\w+)`$")


class JudgeOptions(Struct, frozen=True, kw_only=True):
    """The options, all with a default. ``Judge(…)`` sets them for all programs, ``judge.submit(…)`` for one.

    stop_at_first_failure: run no case after one that failed.
    confirm_time_limit: run a case that exceeded a time limit once more before it counts.
    fork_per_case: use a process for each case. Without it, the cases of a Python program share one. This is
        several times cheaper, and marked (``Judgement.shared_process``); see ``judge.kinds.shared_process``.
    score_shared_interpreter: give a score to a judgement that could have been forged
        (``Judgement.shared_interpreter``). Without it, such a judgement has no score.
    max_cases: judge only this number of the problem's cases; None judges all.
    subset_seed: selects these cases, together with the problem's id only. So all programs for a problem get
        the same ones; ``CaseJudgement.index`` identifies them.
    hash_seed: the seed with which a Python program hashes text. With 0, a set of strings always has the same
        order. Each other seed needs another fork-server.
    priority: jobs with a higher priority run first. Equal priorities run by deadline, then by arrival.
    deadline_s: seconds from submission until the judgement must be known. Then the running program is
        stopped. Failed cases count. The rest is TIME_LIMIT if the program used most of the time, and
        JUDGE_ERROR if the queue or other programs on the machine did.
    queued_s: seconds for which it waited elsewhere before. They count as time in the queue.
    """

    stop_at_first_failure: bool = False
    confirm_time_limit: bool = True
    fork_per_case: bool = True
    score_shared_interpreter: bool = False
    max_cases: Annotated[int, Meta(ge=1)] | None = None
    subset_seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] = 0
    hash_seed: Annotated[int, Meta(ge=0, le=_MAX_HASH_SEED)] = HASH_SEED
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    deadline_s: Annotated[float, Meta(gt=0, le=_MAX_DEADLINE_S)] | None = None
    queued_s: Annotated[float, Meta(ge=0, le=_MAX_DEADLINE_S)] = 0.0

    def __post_init__(self) -> None:
        for name, seconds in (("deadline_s", self.deadline_s), ("queued_s", self.queued_s)):
            if seconds is not None and math.isnan(seconds):
                raise ValueError(f"`{name}` is not a number")


def queued_before(options: dict[str, Any]) -> float:
    """Return ``queued_s`` of options that are not validated yet. Raises UserError for an invalid value."""
    given = {name: value for name, value in options.items() if name == "queued_s"}
    return options_with(JudgeOptions(), given).queued_s


def options_with(options: JudgeOptions, given: dict[str, Any]) -> JudgeOptions:
    """Return ``options`` with the ``given`` ones replaced.

    Raises TypeError for an unknown name, as Python does, and UserError for an invalid value.
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
    # msgspec cannot put text with a lone surrogate into its error message.
    except UnicodeEncodeError:
        name = next((name for name, value in given.items() if isinstance(value, str)), "an option")
        raise UserError(f"{name} is {given.get(name)!r}: options are numbers, True or False") from None
