"""In the testing process: a problem's own checker decides whether an output is right.

Writes ``[True]`` or ``[False]``; ``["raised", reason]`` when ``check`` raised an exception on these
texts; ``["broken", reason]`` when there is no ``check``, it answers anything else, or it ran out of room.
"""

from __future__ import annotations

import os
from typing import Any

from whetstone.judge.harness.loading import CompileFailure, describe, load_program, write_all
from whetstone.judge.values import decode, encode


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``check(input, output, expected)`` and write what it says."""
    source, *texts = decode(payload)
    try:
        answer = _decision(load_program(source), texts)
    except CompileFailure as error:
        answer = ["broken", f"the checker does not compile: {error}"]
    except BaseException as error:
        answer = ["broken", describe(error)]
    write_all(result_fd, encode(answer))
    os._exit(0)


def _decision(scope: dict[str, Any], texts: list[str]) -> list[Any]:
    if "check" not in scope:
        raise NameError("the checker defines no check(input, output, expected)")
    try:
        decided = scope["check"](*texts)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        return ["raised", describe(error)]
    if type(decided) is not bool:
        return ["broken", f"check() returned {type(decided).__name__}, not a bool"]
    return [decided]
