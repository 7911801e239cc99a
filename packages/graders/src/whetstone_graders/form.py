"""An official form: a problem as another grader would judge it, in our judge."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec import Struct

from whetstone.core.problem import Problem, Program


class OfficialForm(Struct, frozen=True):
    """``problem`` has the grader's rules; ``call`` starts the stand-in over the code of a reply.

    ``call`` is Python with ``{code}`` where the code's literal goes.
    """

    problem: Problem
    call: str

    def program(self, code: str) -> Program:
        """Return the judged program for the code of a reply. Blank code stays blank."""
        if not code.strip():
            return Program("python", "")
        last_line = self.call.format(code=repr(code))
        return Program("python", f"{_stand_in()}\n\n{last_line}\n")


@cache
def _stand_in() -> str:
    return (Path(__file__).parent / "stand_in.py").read_text(encoding="utf-8")
