"""Messages for values that do not fit the problem schema: the field, and the closest known name."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from whetstone.core.call_tests import ResultArgument
from whetstone.core.errors import did_you_mean
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    CaseGroup,
    Compare,
    InteractiveCase,
    InteractiveTests,
    Limits,
    NoTests,
    Problem,
    Program,
    ProgramChecker,
    ProgramInteractor,
    PythonChecker,
    PythonInteractor,
    Scoring,
    StandardChecker,
    StdinCase,
    StdinTests,
)

_STRUCTS_AT: dict[str, tuple[type[Struct], ...]] = {
    "": (Problem,),
    "tests": (StdinTests, CallTests, AssertTests, InteractiveTests, NoTests),
    "tests.cases": (StdinCase, CallCase, InteractiveCase),
    "tests.result": (ResultArgument,),
    "tests.interactor": (PythonInteractor, ProgramInteractor),
    "compare": (Compare,),
    "checker": (PythonChecker, ProgramChecker, StandardChecker),
    "scoring": (Scoring,),
    "scoring.groups": (CaseGroup,),
    "limits": (Limits,),
    "references": (Program,),
    "wrong": (Program,),
}
# The names of our fields in other sets of problems. Their spelling alone would suggest a wrong field.
_OTHER_NAMES: dict[str, dict[str, str]] = {
    "": {
        "description": "statement",
        "memory_limit": "limits.memory_mb",
        "prompt": "statement",
        "question": "statement",
        "solution": "references",
        "solutions": "references",
        "test_cases": "tests",
        "time_limit": "limits.cpu_s",
        "timeout": "limits.cpu_s",
    },
    "tests.cases": {"expected": "output", "expected_output": "output", "stdin": "input", "stdout": "output"},
    "limits": {"memory": "memory_mb", "memory_limit": "memory_mb", "time": "cpu_s", "time_limit": "cpu_s"},
}
_TAGS = {
    "tests.kind": ("stdin", "call", "assert", "interactive", "none"),
    "tests.interactor.type": ("python", "program"),
    "checker.type": ("python", "program", "standard"),
}


def explain(error: msgspec.ValidationError) -> str:
    """Explain a validation error of a Problem, with a suggestion for a misspelt name."""
    message, _, place = str(error).partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    pattern = re.sub(r"\[[^\]]*\]", "", path)
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL):
        name = unknown[1]
        if other := _OTHER_NAMES.get(pattern, {}).get(name):
            return f"unknown field `{_join(path, name)}`; did you mean `{other}`?"
        # The fields of all kinds of test are compared, so the name may be that of another kind.
        known = [field for field in _fields(pattern) if field != name]
        return f"unknown field `{_join(path, name)}`{did_you_mean(name, known)}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", message):
        return f"field `{_join(path, missing[1])}` is missing"
    if message.startswith("Expected `array` of length >= 1"):
        return f"`{path}` is empty; a problem needs at least one test"
    if tag := re.fullmatch(r"Invalid value '(.*)'", message):
        known = _TAGS.get(pattern, ())
        if known:
            return f"`{path}` is {tag[1]!r}, not one of {', '.join(known)}{did_you_mean(tag[1], known)}"
    return f"`{path}`: {message}" if path else message


def known_columns() -> tuple[str, ...]:
    """Return the top-level field names of a problem, in schema order."""
    return tuple(field.encode_name for field in msgspec.structs.fields(Problem))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _fields(pattern: str) -> list[str]:
    return [f.encode_name for struct in _STRUCTS_AT.get(pattern, ()) for f in msgspec.structs.fields(struct)]
