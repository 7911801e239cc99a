"""The errors a person can cause, each of which names the way out.

Everything that a user can get wrong (a recipe key, a missing file, a malformed problem) is
raised as a :class:`UserError`. The command line prints its message without a traceback and
exits with status 2. Anything else that escapes is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

BAD_INPUT, INTERRUPTED = 2, 130
"""Statuses of the command line: bad input, and told to end."""


class UserError(Exception):
    """Bad input. The message says where, what is wrong, and what to do instead."""


class SandboxUnavailable(UserError):
    """This machine cannot isolate programs as strictly as the caller asked for."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean `x`?"`` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else ""
