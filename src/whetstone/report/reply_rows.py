"""What a page shows of a judged reply, as data: its cases in columns, the line that does not compile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from whetstone.verdict import CaseJudgement, Verdict

_BOTH = re.compile(r"(?:(?P<where>\w+ \d+): )?got (?P<got>.*), expected (?P<expected>.*)", re.DOTALL)
_LINE = re.compile(r"main\.\w+, line (\d+)|main\.\w+:(\d+)")


def case_row(case: CaseJudgement, clip: Callable[[str], str]) -> dict[str, Any]:
    """A case. ``got`` and ``expected`` are there where the reason names both, and no more in it then.

    A reason in which the words between the two occur again is left whole: nobody can say where one ends.
    """
    row: dict[str, Any] = {
        "case": case.index + 1,
        "verdict": case.verdict.value,
        "cpu_ms": round(case.cpu_s * 1000, 2),
        "wall_ms": round(case.wall_s * 1000, 2),
        "peak_mb": round(case.peak_bytes / 2**20, 1),
        "reason": clip(case.reason),
    }
    both = _BOTH.fullmatch(case.reason)
    if both and case.reason.count(", expected ") == 1:
        row |= {
            "reason": both["where"] or "",
            "got": clip(both["got"]),
            "expected": clip(both["expected"]),
        }
    return row


def case_rows(cases: Iterable[CaseJudgement], clip: Callable[[str], str]) -> list[dict[str, Any]]:
    """All cases, see :func:`case_row`."""
    return [case_row(case, clip) for case in cases]


def error_line(verdict: Verdict | None, reason: str) -> int | None:
    """The line of the program that a compiler complains of; None where it names none."""
    if verdict is not Verdict.COMPILE_ERROR or not (found := _LINE.search(reason)):
        return None
    return int(found[1] or found[2])
