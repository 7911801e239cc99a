"""In the test process: run a problem's Python interactor. See ``checker_call``."""

from __future__ import annotations

import inspect
import os

from whetstone.judge.rpc.checker_call import load_function, run_decision
from whetstone.judge.rpc.loading import limit_digits, write_all
from whetstone.judge.values import decode, encode

_CHUNK = 1 << 16


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``interact`` and write its decision."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    source, input_text, answer = decode(payload)
    limit_digits(input_text, answer)
    conversation = _Conversation(link_fd)
    interact = load_function(source, "interact")
    if callable(interact):
        wants_answer = len(inspect.signature(interact).parameters) == 4
        texts = (input_text, answer) if wants_answer else (input_text,)
        decision = run_decision(lambda: interact(*texts, conversation.read, conversation.write), "interact")
    else:
        decision = interact
    write_all(result_fd, encode(decision))
    os._exit(0)


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
