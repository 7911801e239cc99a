"""In the test process: load a problem's checker or interactor in Python, and run its decision.

The result is ``[True]`` or ``[False]``; ``["raised", text]`` if the function raised an exception; ``["no
bool", text]`` if it returned another type; ``["left", text]`` if it called exit; ``["broken", text]`` if
there is no such function, or if its module fails.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from whetstone.judge.rpc.loading import SourceError, describe, limit_digits, load_program, write_all
from whetstone.judge.values import decode, encode

_CHUNK = 1 << 16


def run_checker(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``check(input, output, expected)`` and write its decision. Encoded output contains values."""
    source, given, output, expected = decode(payload)
    limit_digits(*(text for text in (given, expected) if isinstance(text, str)))
    check = _load_function(source, "check")
    if callable(check):
        # Reading hostile values may fail, as the function may.
        read = _returned_values if isinstance(output, bytes) else str
        answer = _run_decision(lambda: check(given, read(output), expected), "check")
    else:
        answer = check
    write_all(result_fd, encode(answer))
    os._exit(0)


def run_interactor(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``interact`` and write its decision."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    source, input_text, answer = decode(payload)
    limit_digits(input_text, answer)
    conversation = _Conversation(link_fd)
    interact = _load_function(source, "interact")
    if callable(interact):
        wants_answer = len(inspect.signature(interact).parameters) == 4
        texts = (input_text, answer) if wants_answer else (input_text,)
        decision = _run_decision(lambda: interact(*texts, conversation.read, conversation.write), "interact")
    else:
        decision = interact
    write_all(result_fd, encode(decision))
    os._exit(0)


def _returned_values(answer: bytes) -> object:
    """Return the value in the answer of the harness ``call``; of operations, the list of their values."""
    kind, value = decode(answer)
    return [decode(each) for each in value] if kind == "values" else value


def _load_function(source: str, name: str) -> Callable[..., Any] | list[Any]:
    """Return the function ``name`` of the source, or the result to write if it cannot be loaded."""
    try:
        function = load_program(source).get(name)
    except SourceError as error:
        return ["broken", f"it does not compile: {error}"]
    except BaseException as error:
        return ["broken", describe(error)]
    return function if callable(function) else ["broken", f"it defines no {name}(…)"]


def _run_decision(decide: Callable[[], object], name: str) -> list[Any]:
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


class _Conversation:
    """Reads lines of the program, and writes text to it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pending = bytearray()
        self._searched = 0
        self._ended = False

    def read(self) -> str:
        """Return the next line of the program, without its end. Raises EOFError if there is none."""
        while (end := self._pending.find(b"\n", self._searched)) < 0 and not self._ended:
            self._searched = len(self._pending)
            self._receive()
        if end < 0 and not self._pending:
            raise EOFError("the program has closed its output")
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
        """Send text at once.

        Has no effect if the program has ended; the next ``read`` then raises EOFError.
        """
        try:
            write_all(self._fd, text.encode("utf-8", "surrogatepass"))
        except OSError:
            return
