"""In the testing process: a problem's own checker decides whether an output is right.

Writes ``[True]`` or ``[False]``, or ``["broken", reason]`` when the checker fails or answers anything else.
"""

from __future__ import annotations

import os
from typing import Any

from whetstone.judge.harness.loading import CompileFailure, describe, load_program, write_all
from whetstone.judge.values import decode, encode


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``check(input, output, expected)`` and write what it says."""
    try:
        answer: list[Any] = [_decision(*decode(payload))]
        if type(answer[0]) is not bool:
            answer = ["broken", f"check() returned {type(answer[0]).__name__}, not a bool"]
    except CompileFailure as error:
        answer = ["broken", f"the checker does not compile: {error}"]
    except BaseException as error:
        answer = ["broken", describe(error)]
    write_all(result_fd, encode(answer))
    os._exit(0)


def _decision(source: str, given: str, output: str, expected: str) -> object:
    scope = load_program(source)
    if "check" not in scope:
        raise NameError("the checker defines no check(input, output, expected)")
    return scope["check"](given, output, expected)
