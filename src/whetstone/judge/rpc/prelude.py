"""The names that LeetCode provides to a ``class Solution`` program, which therefore does not import them.

They are collected once, before programs are forked.
"""

from __future__ import annotations

import builtins
import importlib

# Later modules win: `Counter` is the one of collections, not of typing.
_STAR_MODULES = (
    *("typing", "string", "re", "datetime", "operator", "copy", "random", "statistics"),
    *("itertools", "functools", "heapq", "bisect", "math", "collections"),
)
_MODULES = (*_STAR_MODULES, "sys", "json", "queue", "time")


def _star_imports(module: str) -> dict[str, object]:
    """Return the names that ``from module import *`` binds, without names of builtins (operator.pow,
    re.compile)."""
    found = importlib.import_module(module)
    public: list[str] = getattr(found, "__all__", None) or [name for name in vars(found) if name[:1] != "_"]
    return {name: getattr(found, name) for name in public if not hasattr(builtins, name)}


def _collect_names() -> dict[str, object]:
    names: dict[str, object] = {}
    for module in _STAR_MODULES:
        names.update(_star_imports(module))
    # A module wins over a member of the same name: `bisect.bisect_left`, `copy.deepcopy`, `datetime.date`.
    names.update({module: importlib.import_module(module) for module in _MODULES})
    return names


# The names with their objects. Each program gets a copy in its globals.
PRELUDE = _collect_names()
