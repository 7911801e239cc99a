"""In the sandbox: run a program and its test code in one interpreter, for tests that cannot use the proxy.

The program can forge the outcome here, because it shares the process with this code and the test's expected
values. So the judgement is marked. Two measures make forging harder, but not impossible. The outcome must
contain a random token of this run, which the program has to find first. And the functions that write it are
taken from ``os`` before the program is loaded.
"""

from __future__ import annotations

import importlib
import os
from functools import partial
from typing import Any

from whetstone.judge.rpc.compiling import TestCodeError, compile_test_code
from whetstone.judge.rpc.loading import SourceError, describe, load_program
from whetstone.judge.rpc.test_code import failed_line, run_tests
from whetstone.judge.values import decode, encode

_write, _exit = os.write, os._exit


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Load the program, run the unit in its namespace, and write ``[token, status, reason]``."""
    token, source, unit = decode(payload)
    try:
        data = encode([token, *_run_unit(source, unit)])
    except SourceError as failure:
        data = failure.answer()
    except TestCodeError as error:
        data = encode([token, "broken", str(error)[:300]])
    view = memoryview(data)
    while view:
        view = view[_write(result_fd, view) :]
    _exit(0)


def _run_unit(source: str, unit: dict[str, Any]) -> list[str]:
    try:
        codes = [compile_test_code(unit["setup"], "<setup>"), compile_test_code(unit["code"], "<test>")]
        scope = load_program(source)
    except (SourceError, TestCodeError):
        raise
    except BaseException as error:
        return ["raised", describe(error)]
    entry = unit["entry_point"]
    if entry and entry not in scope:
        return ["missing", f"the program defines no `{entry}`"]
    try:
        for name, (module, attribute) in unit["imports"].items():
            if name not in scope:
                imported = importlib.import_module(module)
                scope[name] = getattr(imported, attribute) if attribute else imported
        if unit["entry_point"] and "candidate" in unit["free"]:
            scope["candidate"] = scope[unit["entry_point"]]
        for code in codes:
            exec(code, scope)
        return run_tests(unit, scope, scope["__name__"], partial(_explain, code=unit["code"]))
    except TestCodeError:
        raise
    except BaseException as error:
        return _explain(error, unit["code"])


def _explain(error: BaseException, code: str) -> list[str]:
    if isinstance(error, AssertionError):
        return ["failed", str(error)[:300] or failed_line(error, code)]
    if isinstance(error, NameError):
        return ["missing", describe(error)]
    return ["raised", describe(error)]
