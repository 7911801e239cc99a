"""The errors that a user can cause. Each message names the remedy.

Every mistake of a user (a wrong recipe key, a missing file, a malformed problem) is raised as a
:class:`UserError`. The command line prints its message without a traceback and exits with status 2. Any other
exception is a defect of Whetstone and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Exit statuses of the command line: bad input, and interrupted.
BAD_INPUT, INTERRUPTED = 2, 130


class UserError(Exception):
    """Bad input. The message names the place, the wrong value and the remedy."""


class SandboxUnavailable(UserError):
    """This machine cannot isolate programs as strictly as the caller asked for."""


def user_error_of(group: BaseExceptionGroup[BaseException]) -> UserError | None:
    """Return the first error of a group that contains only errors of the user, else None."""
    users, others = group.split(UserError)
    # Another error of the group may be its cause, so the whole group is shown.
    if users is None or others is not None:
        return None
    inner: UserError | BaseExceptionGroup[UserError] = users
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean `x`?"`` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else ""
