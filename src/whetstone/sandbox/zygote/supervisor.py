"""The fork-server's outer process, which keeps the privileges that the template process gave up.

The template process forks the runs and has no privileges. It requests a fresh /tmp from the supervisor, over
a socket that no run has. The supervisor outlives the template process and removes the files that the template
process may not remove. It reads no data of a run.
"""

from __future__ import annotations

import _socket
import os
from collections.abc import Callable
from typing import NoReturn

from . import kernel, wire

RENEW, RENEWED = b"r", b"."
_MAX_TEXT = 500


def serve(
    template_pid: int, requests: _socket.socket, renew: Callable[[], None], clean_up: Callable[[], None]
) -> NoReturn:
    """Serve the template process until it ends, then clean up and exit."""
    # An empty read means that the template process closed its end: it has exited.
    while requests.recv(1) == RENEW:
        try:
            renew()
            answer = RENEWED
        except kernel.StepRefused as error:
            answer = str(error).encode()[:_MAX_TEXT]
        requests.send(answer)
    os.waitpid(template_pid, 0)
    clean_up()
    os._exit(0)


def ask_for_fresh_tmp() -> None:
    """Request a new, empty file system on /tmp. The template process calls this. Raises
    StepRefused, OSError."""
    os.write(wire.SUPERVISOR_FD, RENEW)
    answer = os.read(wire.SUPERVISOR_FD, _MAX_TEXT)
    if answer != RENEWED:
        raise kernel.StepRefused(
            answer.decode(errors="replace") or "the supervisor that mounts /tmp has exited"
        )
