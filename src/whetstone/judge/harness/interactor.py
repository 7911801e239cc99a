"""In the testing process: a problem's own ``interact`` talks to the program and decides.

Writes ``[True]`` or ``[False]``; ``["ended"]`` when the program closed its output and ``interact`` did not
catch the EOFError of ``read``; ``["raised", reason]`` for any other exception of ``interact``, or when it
returned no bool; ``["broken", reason]`` when there is none, or it ran out of room.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from whetstone.judge.harness.loading import CompileFailure, describe, limit_digits, load_program, write_all
from whetstone.judge.values import decode, encode

_CHUNK = 1 << 16


class _ProgramEnded(EOFError):
    """Nothing more will come from the program."""


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``interact`` and write what it says."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    source, given, answer = decode(payload)
    limit_digits(given, answer)
    try:
        said = _interact(load_program(source), given, answer, _Conversation(link_fd))
    except CompileFailure as error:
        said = ["broken", f"the interactor does not compile: {error}"]
    except BaseException as error:
        said = ["broken", describe(error)]
    write_all(result_fd, encode(said))
    os._exit(0)


class _Conversation:
    """Lines from the program, text to it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pending = bytearray()
        self._searched = 0
        self._ended = False

    def read(self) -> str:
        """The program's next line, without its end. Raises EOFError when there is none."""
        while (end := self._pending.find(b"\n", self._searched)) < 0 and not self._ended:
            self._searched = len(self._pending)
            self._receive()
        if end < 0 and not self._pending:
            raise _ProgramEnded("the program has closed its output")
        stop = end if end >= 0 else len(self._pending)
        line = bytes(self._pending[:stop])
        del self._pending[: stop + 1]
        self._searched = 0
        return line.removesuffix(b"\r").decode("utf-8", "replace")

    def _receive(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except OSError:
            data = b""
        self._pending += data
        self._ended = not data

    def write(self, text: str) -> None:
        """Send text at once. To a program that has ended, nothing happens; reading then says so."""
        try:
            write_all(self._fd, text.encode("utf-8", "surrogatepass"))
        except OSError:
            return


def _interact(scope: dict[str, Any], given: str, answer: str, talk: _Conversation) -> list[Any]:
    if "interact" not in scope:
        raise NameError("the interactor defines no interact(input, read, write)")
    interact: Callable[..., Any] = scope["interact"]
    wants_answer = len(inspect.signature(interact).parameters) == 4
    texts = (given, answer) if wants_answer else (given,)
    try:
        decided = interact(*texts, talk.read, talk.write)
    except _ProgramEnded:
        return ["ended"]
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        return ["raised", describe(error)]
    if type(decided) is not bool:
        return ["raised", f"interact() returned {type(decided).__name__}, not a bool"]
    return [decided]
