"""In the testing process: a problem's own checker decides whether an output is right.

Writes ``[True]`` or ``[False]``; ``["raised", reason]`` when ``check`` raised an exception on these
texts or returned no bool; ``["broken", reason]`` when there is no ``check``, or it ran out of room.
"""

from __future__ import annotations

import os
from typing import Any

from whetstone.judge.harness.loading import CompileFailure, describe, limit_digits, load_program, write_all
from whetstone.judge.values import decode, encode


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``check(input, output, expected)`` and write what it says."""
    source, given, output, expected = decode(payload)
    limit_digits(given, expected)
    try:
        answer = _decision(load_program(source), (given, output, expected))
    except CompileFailure as error:
        answer = ["broken", f"the checker does not compile: {error}"]
    except BaseException as error:
        answer = ["broken", describe(error)]
    write_all(result_fd, encode(answer))
    os._exit(0)


def _decision(scope: dict[str, Any], texts: tuple[str, str, str]) -> list[Any]:
    if "check" not in scope:
        raise NameError("the checker defines no check(input, output, expected)")
    try:
        decided = scope["check"](*texts)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        return ["raised", describe(error)]
    if type(decided) is not bool:
        return ["raised", f"check() returned {type(decided).__name__}, not a bool"]
    return [decided]
