"""What Python programs may execute where all their processes are accounted for: the interpreter, and the
system's programs. They find nothing in those that they could not do themselves, under the same filters.
"""

from __future__ import annotations

import os
import sys

_SYSTEM = ("/bin", "/usr/bin", "/etc/alternatives", "/etc/ld.so.cache")
_NAMES = ("python", "python3")


def system_tools() -> list[str]:
    """Where the system has its programs."""
    return [path for path in _SYSTEM if os.path.lexists(path)]


def interpreter() -> str:
    """The interpreter's own file."""
    return os.path.realpath(sys.executable)


def search_path() -> str:
    """Where programs find programs: ``python3`` is the interpreter that they run in."""
    folders = (os.path.dirname(interpreter()), "/usr/bin", "/bin")
    return ":".join(dict.fromkeys(folders))


def other_names() -> dict[str, str]:
    """Names of the interpreter beside its file, as an installation has them, and what each leads to."""
    real, called = interpreter(), os.path.abspath(sys.executable)
    beside = [os.path.join(os.path.dirname(real), name) for name in _NAMES]
    return {path: real for path in dict.fromkeys((called, *beside)) if path != real}
