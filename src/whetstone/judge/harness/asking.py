"""In the testing process: finding the function of a problem's checker or interactor, and asking it to decide.

What is written of it: ``[True]`` or ``[False]``; ``["raised", what]`` when it raised an exception over what
it was given, ``["no bool", what]`` when it returned something else, ``["left", how]`` when it wanted to end
the process; ``["broken", what]`` when there is no such function, or its module fails by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whetstone.judge.harness.loading import CompileFailure, describe, load_program


def loaded(source: str, name: str) -> Callable[..., Any] | list[Any]:
    """The function ``name`` of the source; or what to write where there is none."""
    try:
        function = load_program(source).get(name)
    except CompileFailure as error:
        return ["broken", f"it does not compile: {error}"]
    except BaseException as error:
        return ["broken", describe(error)]
    return function if callable(function) else ["broken", f"it defines no {name}(…)"]


def said(ask: Callable[[], object], name: str) -> list[Any]:
    """What to write of the function's decision, or of its failure."""
    try:
        decided = ask()
    except SystemExit as stop:
        return ["left", f"it called exit({stop.code!r:.100})"]
    except BaseException as error:
        return ["raised", describe(error)]
    if type(decided) is bool:
        return [decided]
    kind = type(decided)
    if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"):
        return [bool(decided)]
    return ["no bool", f"{name}() returned {kind.__name__}, not a bool"]
