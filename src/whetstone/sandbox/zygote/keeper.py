"""The fork-server's outer process: it keeps what the confined one gave up.

The stem, which forks the runs, has no privilege left. What needs one is asked of this process, over a
socket that no run has: a fresh /tmp. It also outlives the stem, to remove what the stem could not.
No run's data comes here.
"""

from __future__ import annotations

import _socket
import os
from collections.abc import Callable
from typing import NoReturn

from . import kernel, wire

RENEW, RENEWED = b"r", b"."
_MAX_TEXT = 500


def keep(
    stem: int, requests: _socket.socket, renew: Callable[[], None], clean_up: Callable[[], None]
) -> NoReturn:
    """Serve the stem until it ends, then clean up and leave."""
    while requests.recv(1) == RENEW:
        try:
            renew()
            answer = RENEWED
        except kernel.StepRefused as error:
            answer = str(error).encode()[:_MAX_TEXT]
        requests.send(answer)
    os.waitpid(stem, 0)
    clean_up()
    os._exit(0)


def ask_for_fresh_tmp() -> None:
    """From the stem: have a new, empty file system mounted on /tmp. Raises StepRefused, OSError."""
    os.write(wire.KEEPER_FD, RENEW)
    answer = os.read(wire.KEEPER_FD, _MAX_TEXT)
    if answer != RENEWED:
        raise kernel.StepRefused(answer.decode(errors="replace") or "the keeper of /tmp is gone")
