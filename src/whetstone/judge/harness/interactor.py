"""In the testing process: a problem's own ``interact`` talks to the program and decides. See ``asking``."""

from __future__ import annotations

import inspect
import os

from whetstone.judge.harness.asking import loaded, said
from whetstone.judge.harness.loading import limit_digits, write_all
from whetstone.judge.values import decode, encode

_CHUNK = 1 << 16


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``interact`` and write what it says."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    source, given, answer = decode(payload)
    limit_digits(given, answer)
    talk = _Conversation(link_fd)
    interact = loaded(source, "interact")
    if callable(interact):
        wants_answer = len(inspect.signature(interact).parameters) == 4
        texts = (given, answer) if wants_answer else (given,)
        decision = said(lambda: interact(*texts, talk.read, talk.write), "interact")
    else:
        decision = interact
    write_all(result_fd, encode(decision))
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
        """Send text at once. To a program that has ended, nothing happens; reading then says so."""
        try:
            write_all(self._fd, text.encode("utf-8", "surrogatepass"))
        except OSError:
            return
