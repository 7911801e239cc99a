"""Inside the locked child: a program and its test code in one interpreter, where nothing else works.

The program can forge the outcome here: it shares the process with the test's expected values and with
this code. So a judgement that rests on it is marked. What makes forging harder, not impossible: the
outcome counts only with a number that is drawn for this run, which the program has to find first; and
what writes it was taken from ``os`` before the program was loaded.
"""

from __future__ import annotations

import importlib
import os
from functools import partial
from typing import Any

from whetstone.judge.harness.compiling import TestCodeError, compiled
from whetstone.judge.harness.loading import CompileFailure, describe, load_program
from whetstone.judge.harness.test_code import failed_line, ran_to_its_end, run_unittests, test_classes
from whetstone.judge.values import decode, encode

_write, _exit = os.write, os._exit


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Load the program, run the unit in its namespace, and write ``[number, status, reason]``."""
    number, source, unit = decode(payload)
    try:
        data = encode([number, *_outcome(source, unit)])
    except CompileFailure as failure:
        data = failure.answer()
    except TestCodeError as error:
        data = encode([number, "broken", str(error)[:300]])
    view = memoryview(data)
    while view:
        view = view[_write(result_fd, view) :]
    _exit(0)


def _outcome(source: str, unit: dict[str, Any]) -> list[str]:
    try:
        codes = [compiled(unit["setup"], "<setup>"), compiled(unit["code"], "<test>")]
        scope = load_program(source)
    except (CompileFailure, TestCodeError):
        raise
    except BaseException as error:
        return ["raised", describe(error)]
    entry = unit["entry_point"]
    if entry and entry not in scope:
        return ["missing", f"the program defines no `{entry}`"]
    try:
        _complete(scope, unit)
        for code in codes:
            exec(code, scope)
        return _run(unit, scope)
    except TestCodeError:
        raise
    except BaseException as error:
        return _explain(error, unit["code"])


def _complete(scope: dict[str, Any], unit: dict[str, Any]) -> None:
    """What the test uses without importing it, as where it stands apart from the program."""
    for name, (module, attribute) in unit["imports"].items():
        if name not in scope:
            imported = importlib.import_module(module)
            scope[name] = getattr(imported, attribute) if attribute else imported
    if unit["entry_point"] and "candidate" in unit["free"]:
        scope["candidate"] = scope[unit["entry_point"]]


def _run(unit: dict[str, Any], scope: dict[str, Any]) -> list[str]:
    if unit["kind"] == "check":
        if "check" not in scope:
            raise TestCodeError("the test code defines no `check`")
        ran_to_its_end(scope["check"](scope[unit["entry_point"]]))
    if unit["kind"] == "unittest":
        return run_unittests(
            test_classes(scope.values(), scope["__name__"]), partial(_explain, code=unit["code"])
        )
    return ["passed", ""]


def _explain(error: BaseException, code: str) -> list[str]:
    if isinstance(error, AssertionError):
        return ["failed", str(error)[:300] or failed_line(error, code)]
    if isinstance(error, NameError):
        return ["missing", describe(error)]
    return ["raised", describe(error)]
