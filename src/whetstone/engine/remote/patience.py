"""How long a failing endpoint is tried again before a reply is given up."""

from __future__ import annotations

import random
import time

MOST_TRIES = 8
LONGEST_WAIT_S = 60.0


class Patience:
    """Shared by all requests to one endpoint; times are on the monotonic clock.

    A request is given up after ``MOST_TRIES`` tries, or when the endpoint has answered none at all
    for ``silence_s`` seconds: so a dead endpoint costs that long once, not for every reply.
    """

    def __init__(self, silence_s: float, first_wait_s: float) -> None:
        self._silence_s = silence_s
        self._first_wait_s = first_wait_s
        self._answered = time.monotonic()

    def answered(self) -> None:
        """The endpoint has just served a request."""
        self._answered = time.monotonic()

    def wait_s(self, tries: int, asked_s: float | None) -> float | None:
        """Seconds to wait before the next try, after so many; None to give up.

        Doubles with every try, and is drawn from the upper half so that requests do not come back all
        at once. ``asked_s`` is what the endpoint asks for (Retry-After), at most ``LONGEST_WAIT_S``.
        """
        if tries >= MOST_TRIES or time.monotonic() - self._answered > self._silence_s:
            return None
        longest = min(LONGEST_WAIT_S, self._first_wait_s * 2 ** (tries - 1))
        wait = longest * random.uniform(0.5, 1.0)
        return max(wait, min(asked_s or 0.0, LONGEST_WAIT_S))
