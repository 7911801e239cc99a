"""The names that LeetCode provides to a program, which therefore does not import them.

The graders of APPS, TACO and PRIME provide them to bare functions as well. They are collected once, before
programs are forked.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Collection

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


_PRELUDE = _collect_names()
# A program that uses one of these may find names by their text.
_FINDERS = frozenset(
    {"eval", "exec", "globals", "locals", "vars", "dir", "compile", "__import__", "get_type_hints"}
)


def names_for(used: Collection[str], tested: str) -> dict[str, object]:
    """Return the names for the globals of a program, with their objects.

    used: the names in its code. Each name writes to the memory of its object, so unused ones would cost time.
    tested: the tested function or class, which the program must define itself.
    """
    wanted = _PRELUDE if _FINDERS.intersection(used) else _PRELUDE.keys() & used
    return {name: _PRELUDE[name] for name in wanted if name != tested}
