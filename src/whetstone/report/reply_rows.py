"""The data of a judged reply for pages: its cases, and the line that does not compile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from whetstone.core.verdict import CaseJudgement, Verdict

_BOTH = re.compile(r"(?:(?P<where>\w+ \d+): )?got (?P<got>.*), expected (?P<expected>.*)", re.DOTALL)
_LINE = re.compile(r"main\.\w+, line (\d+)|main\.\w+:(\d+)")


def case_row(case: CaseJudgement, clip: Callable[[str], str], inputs: Sequence[str] = ()) -> dict[str, Any]:
    """Return a case. If the reason names both values, they are in ``got`` and ``expected``, not in
    ``reason``. ``inputs``: the inputs of all cases of the problem, if they are known.

    A reason that contains the separator twice is ambiguous and stays whole.
    """
    row: dict[str, Any] = {
        "case": case.index + 1,
        "verdict": case.verdict.value,
        "cpu_ms": round(case.cpu_s * 1000, 2),
        "wall_ms": round(case.wall_s * 1000, 2),
        "peak_mb": round(case.peak_bytes / 2**20, 1),
        "reason": clip(case.reason),
    }
    if case.index < len(inputs):
        row["input"] = clip(inputs[case.index])
    both = _BOTH.fullmatch(case.reason)
    # A program may print the separator itself.
    if both and case.reason.count(", expected ") == 1:
        row |= {
            "reason": both["where"] or "",
            "got": clip(both["got"]),
            "expected": clip(both["expected"]),
        }
    return row


def case_rows(
    cases: Iterable[CaseJudgement], clip: Callable[[str], str], inputs: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return all cases, see :func:`case_row`."""
    return [case_row(case, clip, inputs) for case in cases]


def verdict_word(
    verdict: Verdict | None, accepted: bool | None, reward: float | None, *, failed: bool
) -> str:
    """Return the word for the result of a reply: its verdict, or without one ``failed``, ``solved``,
    ``not_solved``, ``rewarded`` or ``no_result``."""
    if failed:
        return "failed"
    if verdict is not None:
        return verdict.value
    if accepted is not None:
        return "solved" if accepted else "not_solved"
    return "no_result" if reward is None else "rewarded"


def error_line(verdict: Verdict | None, reason: str) -> int | None:
    """Return the line of the program that the compiler rejects; None if the message names no line."""
    if verdict is not Verdict.COMPILE_ERROR or not (found := _LINE.search(reason)):
        return None
    return int(found[1] or found[2])
