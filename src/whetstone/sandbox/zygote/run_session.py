"""The harness ``session``: a process that runs one piece of code after another in one ``__main__``.

The link is the connection to the client. A call is its number, the size of its source, and the source; its
answer is the number and ``DONE`` or ``ERROR``. Output is not a part of the answer: both standard streams are
one pipe, in which the client finds what was written until the answer.

The program shares this process and can write the same bytes. The client treats them as what they are: a
claim about the program's own output, from the program.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import os
import struct
import sys
import traceback
from types import CodeType

from .program import flush_streams

CALL = struct.Struct("=QI")
ANSWER = struct.Struct("=QB")
DONE, ERROR = 1, 2

_getpid, _exit, _read, _write = os.getpid, os._exit, os.read, os.write

_REHEARSED = b"""
from collections import Counter
def count(words):
    return Counter(word for word in words if word)
print(count("a b a".split()))
try:
    [][0]
except IndexError as error:
    print(error)
{1: 2}
"""
REHEARSALS = ((b"", CALL.pack(1, len(_REHEARSED)) + _REHEARSED, ANSWER.pack(1, DONE)),)


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run calls until the client closes the link."""
    assert link_fd is not None
    os.close(result_fd)
    os.dup2(1, 2)  # one pipe, so that the order of output is kept
    os.set_inheritable(link_fd, False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    shell = _Shell(link_fd)
    while shell.run_next_call():
        pass


class _Shell:
    """Runs calls in the namespace of ``__main__``."""

    def __init__(self, link_fd: int) -> None:
        self._link = link_fd
        self._pid = _getpid()
        self._errors = sys.stderr
        self._scope = sys.modules["__main__"].__dict__
        sys.path.insert(0, os.path.dirname(self._scope["__file__"]))

    def run_next_call(self) -> bool:
        """Receive a call, run it and answer. Returns False if there is no further call."""
        head = self._receive(CALL.size)
        if not head:
            return False
        number, size = CALL.unpack(head)
        ended = self._run(f"<call {number}>", self._receive(size))
        flush_streams()
        if _getpid() != self._pid:  # a child that the code forked: only its parent answers
            _exit(0 if ended == DONE else 1)
        _write(self._link, ANSWER.pack(number, ended))
        return True

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = _read(self._link, size - len(data))
            if not part:
                return b""
            data += part
        return data

    def _run(self, name: str, source: bytes) -> int:
        """Run the source, and show the value of its last expression or the error. SystemExit ends the
        process, as in any program."""
        codes: list[CodeType] = []
        try:
            codes += _compile(source, name)
            for code in codes:
                exec(code, self._scope)
        except SystemExit:
            raise
        except BaseException as error:
            # The first frame is this function. If the source does not compile, all frames are the compiler's.
            frames = error.__traceback__.tb_next if codes and error.__traceback__ else None
            with contextlib.suppress(BaseException):  # the program may have closed or replaced anything
                traceback.print_exception(type(error), error, frames, file=self._errors)
            return ERROR
        return DONE


def _compile(source: bytes, name: str) -> list[CodeType]:
    """Return the code of a call. The code of a last expression shows its value."""
    lines = source.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[name] = len(source), None, lines, name
    tree = ast.parse(source, name)
    parts: list[tuple[ast.Module | ast.Interactive, str]] = [(tree, "exec")]
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        parts.append((ast.Interactive([tree.body.pop()]), "single"))
    return [compile(part, name, mode, dont_inherit=True) for part, mode in parts]
