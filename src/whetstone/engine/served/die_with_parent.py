"""Runs a command that ends with its parent: ``python die_with_parent.py PARENT COMMAND…``. Standard library
only.

The kernel sends the signal, however the parent ended. The setting survives ``exec``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Replace this process by the command. Exit at once if the parent has already ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(arguments[0]):
        sys.exit(1)
    os.execvp(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
