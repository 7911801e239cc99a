"""The limits of requests to a server, and how long a failing one is retried."""

from __future__ import annotations

import random
import time
from typing import Annotated

from msgspec import Meta, Struct

from whetstone.core.flag import Flag


class RequestPolicy(Struct, frozen=True):
    """Limits of requests to a server.

    concurrency: concurrent requests. timeout_s: for one request, from start to last byte. silence_s: longest
    time without a byte (see ``IdleWatch``); for a server without streaming, in addition to the time for
    ``max_tokens`` at ``SLOWEST_TOKENS_PER_S``. retry_s, first_wait_s: see RetryPolicy. timeout_key,
    silence_key: the settings to name in messages.
    """

    concurrency: Annotated[int, Meta(ge=1), Flag("requests at once", "N")] = 32
    timeout_s: Annotated[
        float, Meta(gt=0), Flag("longest wait for one reply", "S", name="request-timeout")
    ] = 7200.0
    silence_s: Annotated[
        float,
        Meta(gt=0),
        Flag(
            "ask again after so long without a byte (default: 300; of a server that does not stream its "
            "replies, and the time of --max-tokens at 10 a second)",
            "S",
            name="silence",
        ),
    ] = 300.0
    retry_s: Annotated[
        float,
        Meta(ge=0),
        Flag("give up the requests of a server that answers nothing for so long", "S", name="patience"),
    ] = 300.0
    first_wait_s: float = 1.0
    timeout_key: str = "--request-timeout"
    silence_key: str = "--silence"


MOST_TRIES = 8
LONGEST_WAIT_S = 60.0


class RetryPolicy:
    """Shared by all requests to one endpoint; times are on the monotonic clock.

    A request is given up after ``MOST_TRIES`` tries, or after requests have failed for ``give_up_s`` seconds
    without a success in between. So a dead endpoint costs that time once, not for every reply.
    """

    def __init__(self, give_up_s: float, first_delay_s: float) -> None:
        self._give_up_s = give_up_s
        self._first_delay_s = first_delay_s
        self._failing_since: float | None = None

    def succeeded(self) -> None:
        """Record that a request succeeded."""
        self._failing_since = None

    def delay_s(self, tries: int, retry_after_s: float | None) -> float | None:
        """Return the seconds to wait after so many failed tries; None to give up.

        The delay doubles with every try, and is random in its upper half so that requests do not all retry at
        once. ``retry_after_s`` is the server's Retry-After, limited to ``LONGEST_WAIT_S``.
        """
        now = time.monotonic()
        if self._failing_since is None:
            # Counted from the first failure, not from the last answer: long replies are rare but no failure.
            self._failing_since = now
        if tries >= MOST_TRIES or now - self._failing_since >= self._give_up_s:
            return None
        longest = min(LONGEST_WAIT_S, self._first_delay_s * 2 ** (tries - 1))
        wait = longest * random.uniform(0.5, 1.0)
        return max(wait, min(retry_after_s or 0.0, LONGEST_WAIT_S))
