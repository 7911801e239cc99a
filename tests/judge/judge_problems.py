"""Small problems for the judge's tests."""

from __future__ import annotations

from typing import Any

from whetstone.judge import Program

LIMITS = {"cpu_s": 0.5, "memory_mb": 256.0, "output_mb": 1.0}
"""Short, because programs spin until the limit."""
AMPLE_LIMITS = {**LIMITS, "cpu_s": 10.0}
"""For programs that must not reach their time limit; filling the memory takes long on a busy machine."""


def stdin_problem(*cases: tuple[str, str], **fields: Any) -> dict[str, Any]:
    tests = {"kind": "stdin", "cases": [{"input": given, "output": wanted} for given, wanted in cases]}
    return {"id": "t/stdin", "statement": "", "tests": tests, "limits": LIMITS, **fields}


def call_problem(function: str, *cases: tuple[list[Any], Any], **tests: Any) -> dict[str, Any]:
    listed = [{"args": args, "expected": expected} for args, expected in cases]
    body = {"kind": "call", "function": function, "cases": listed, **tests}
    return {"id": "t/call", "statement": "", "tests": body, "limits": LIMITS}


def assert_problem(references: tuple[str, ...] = (), **tests: Any) -> dict[str, Any]:
    listed = [{"language": "python", "source": source} for source in references]
    body = {"kind": "assert", **tests}
    return {"id": "t/assert", "statement": "", "tests": body, "limits": LIMITS, "references": listed}


def python(source: str) -> Program:
    return Program("python", source)
