"""The executables that a Python program may start, on tiers that account for all its processes.

They are the interpreter and the system's programs. They run under the same filters as the program, so they
give it no new abilities.
"""

from __future__ import annotations

import os
import sys

_SYSTEM = ("/bin", "/usr/bin", "/etc/alternatives", "/etc/ld.so.cache")
_NAMES = ("python", "python3")


def system_paths() -> list[str]:
    """Return the system's program folders, and the files that its programs need to start."""
    return [path for path in _SYSTEM if os.path.lexists(path)]


def interpreter() -> str:
    """Return the path of the interpreter's executable, with links resolved."""
    return os.path.realpath(sys.executable)


def search_path() -> str:
    """Return PATH for programs. The interpreter's folder is first, so that ``python3`` is the interpreter of
    the program."""
    folders = (os.path.dirname(interpreter()), "/usr/bin", "/bin")
    return ":".join(dict.fromkeys(folders))


def other_names() -> dict[str, str]:
    """Return the other usual names of the interpreter, each with the target of its link."""
    real, invoked = interpreter(), os.path.abspath(sys.executable)
    usual = [os.path.join(os.path.dirname(real), name) for name in _NAMES]
    return {path: real for path in dict.fromkeys((invoked, *usual)) if path != real}
