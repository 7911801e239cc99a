"""In the test process: load the function of a problem's checker or interactor, and run its decision.

The result is ``[True]`` or ``[False]``; ``["raised", text]`` if the function raised an exception; ``["no
bool", text]`` if it returned another type; ``["left", text]`` if it called exit; ``["broken", text]`` if
there is no such function, or if its module fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whetstone.judge.rpc.loading import SourceError, describe, load_program


def load_function(source: str, name: str) -> Callable[..., Any] | list[Any]:
    """Return the function ``name`` of the source, or the result to write if it cannot be loaded."""
    try:
        function = load_program(source).get(name)
    except SourceError as error:
        return ["broken", f"it does not compile: {error}"]
    except BaseException as error:
        return ["broken", describe(error)]
    return function if callable(function) else ["broken", f"it defines no {name}(…)"]


def run_decision(decide: Callable[[], object], name: str) -> list[Any]:
    """Return the result to write for the function's decision or failure."""
    try:
        decision = decide()
    except SystemExit as stop:
        return ["left", f"it called exit({stop.code!r:.100})"]
    except BaseException as error:
        return ["raised", describe(error)]
    if type(decision) is bool:
        return [decision]
    kind = type(decision)
    if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"):
        return [bool(decision)]
    return ["no bool", f"{name}() returned {kind.__name__}, not a bool"]
