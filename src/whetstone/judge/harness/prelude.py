"""The names that LeetCode gives to a ``class Solution`` program, which so need not import them.

They are gathered once, before programs are forked off.
"""

from __future__ import annotations

import builtins
import importlib

# Later ones win: `Counter` is the one of collections, not of typing.
_STARRED = (
    *("typing", "string", "re", "datetime", "operator", "copy", "random", "statistics"),
    *("itertools", "functools", "heapq", "bisect", "math", "collections"),
)
_MODULES = (*_STARRED, "sys", "json", "queue", "time")


def _starred(module: str) -> dict[str, object]:
    """What ``from module import *`` binds, without names of builtins (operator.pow, re.compile)."""
    found = importlib.import_module(module)
    public: list[str] = getattr(found, "__all__", None) or [name for name in vars(found) if name[:1] != "_"]
    return {name: getattr(found, name) for name in public if not hasattr(builtins, name)}


def _gathered() -> dict[str, object]:
    names: dict[str, object] = {}
    for module in _STARRED:
        names.update(_starred(module))
    # A module wins over a member of the same name: `bisect.bisect_left`, `copy.deepcopy`, `datetime.date`.
    names.update({module: importlib.import_module(module) for module in _MODULES})
    return names


PRELUDE = _gathered()
"""Name → what it stands for; to be copied into the program's globals."""
