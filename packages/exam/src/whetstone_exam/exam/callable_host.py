"""The process in which an examined function runs: ``python -m whetstone_exam.exam.callable_host``.

Arguments: ``module:function``, the descriptor for answers, a folder to import from, and a failure of the
machine (``failures.py``) or nothing. It reads one JSON request a line from standard input, and writes one
JSON answer a line to the descriptor, with the number of the request. The function may run programs in this
process, so nothing that it leaves behind is trusted: the exam only reads the answers (``host_process``).
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

import msgspec

from whetstone.core.problem import Problem, Program
from whetstone_exam.exam.failures import cause_failure


def main() -> None:
    """Answer requests until standard input ends."""
    target, descriptor, folder, failure = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    requests = os.fdopen(os.dup(0), "rb")
    # Programs that read or print reach neither requests nor the terminal.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    module, _, name = target.partition(":")
    sys.path.insert(0, folder)
    try:
        grade: Any = import_module(module)
        for part in name.split("."):
            grade = getattr(grade, part)
        ready = {"ready": True, "version": str(getattr(grade, "version", ""))}
    except Exception as error:
        ready = {"ready": False, "error": f"{type(error).__name__}: {error}"}
        grade = None
    _write(descriptor, ready)
    if grade is None:
        return
    for line in requests:
        request = msgspec.json.decode(line)
        _write(descriptor, {**_answer(grade, request), "number": request["number"]})
        # The first answer comes from a machine in order, so that all modules of the grader are imported.
        if failure:
            cause_failure(failure)
            failure = ""


def _answer(grade: Any, request: dict[str, Any]) -> dict[str, Any]:
    problem = msgspec.convert(request["problem"], Problem)
    program = msgspec.convert(request["program"], Program)
    unsupported = getattr(grade, "unsupported", None)
    reason = unsupported(problem, program) if unsupported is not None else ""
    if reason:
        return {"unsupported": str(reason)}
    try:
        score = float(grade(problem, program))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"score": score}


def _write(descriptor: int, answer: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
