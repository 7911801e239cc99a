"""Inside the locked child: import a program's source as the module ``main``, from a real file."""

from __future__ import annotations

import contextlib
import linecache
import marshal
import os
import sys
from types import CodeType, ModuleType
from typing import Any

MOST_CODE_BYTES = 32 << 10
"""Longer code is not handed out: the pipe takes this much, and nobody reads it yet."""
_INT_DIGITS = 100_000
_MOST_SAID = 300


# Not ``__main__``: a program whose functions are tested is imported, and what it does below
# ``if __name__ == "__main__"`` (read input, run examples or tests of its own, exit) is not for us.
_NAME = "main"


class CompileFailure(Exception):
    """The source is not Python. The message says where and why."""

    def answer(self) -> bytes:
        """What a harness answers then."""
        return b"compile_error: " + str(self)[:_MOST_SAID].encode("utf-8", "backslashreplace")


class Loader:
    """A program's source, compiled once and imported any number of times. Raises CompileFailure."""

    def __init__(self, source: str, code: bytes = b"") -> None:
        """``code`` is what ``code_to_hand_out`` gave where this source was compiled before, or nothing."""
        self._names = dict(sys.modules["__main__"].__dict__)  # made ready by the fork-server
        path = self._names["__file__"]
        try:
            # Bytes, as Python reads a file: with a byte order mark or an encoding of its own.
            data = source.encode("utf-8", "surrogatepass")
            # What compile() raises on hostile text: null bytes, deep nesting, an absurd literal.
            self._code = _unmarshalled(code, path) or compile(data, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
            raise CompileFailure(str(error) or type(error).__name__) from None
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            write_all(fd, data)
            os.close(fd)
        except OSError:
            # No writable folder: tracebacks and inspect.getsource still find the text.
            linecache.cache[path] = (len(source), None, source.splitlines(True), path)
        self._path = [os.path.dirname(path), *sys.path]
        self._length = len(data)
        self._depth = sys.getrecursionlimit()

    def code_to_hand_out(self) -> bytes:
        """The code for later processes, behind its length in four bytes: 0 for code that is too long."""
        data = b""
        if self._length <= MOST_CODE_BYTES:  # its code is hardly shorter, and making these bytes takes memory
            with contextlib.suppress(ValueError):  # nested too deeply
                data = marshal.dumps(self._code)
            if len(data) > MOST_CODE_BYTES:
                data = b""
        return len(data).to_bytes(4, "little") + data

    def load(self, names: dict[str, object] | None = None) -> dict[str, Any]:
        """Import the program and return its globals; it is in ``sys.modules`` as the main module too.

        ``names`` are put among the globals first. Raises whatever the program raises.
        """
        module = sys.modules["__main__"]
        scope: dict[str, Any] = module.__dict__
        scope["__name__"] = _NAME
        sys.modules[_NAME] = module
        if names:
            scope.update(names)
        sys.path[:] = self._path
        exec(self._code, scope)
        return scope

    def renew(self) -> None:
        """Let the next ``load`` find what it found the first time, as far as a program can change it here."""
        module = sys.modules["__main__"] = ModuleType("__main__")
        module.__dict__.update(self._names)
        sys.setrecursionlimit(self._depth)
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        os.chdir(os.path.dirname(self._names["__file__"]))


def _unmarshalled(code: bytes, path: str) -> CodeType | None:
    """Code that was compiled before, unless as another file than ``path`` is."""
    if not code:
        return None
    found: CodeType = marshal.loads(code)
    return found if found.co_filename == path else None


def load_program(source: str) -> dict[str, Any]:
    """Import ``source`` and return its globals. Raises CompileFailure, or whatever the program raises."""
    return Loader(source).load()


def limit_digits(*texts: str) -> None:
    """Bound the digits of a number that a checker or interactor may read.

    Reading one takes time quadratic in its digits: without a bound, printing digits would stall whoever
    calls int(). Longer numbers are read where ``texts``, the problem's own, are as long.
    """
    sys.set_int_max_str_digits(max(_INT_DIGITS, *(2 * len(text) for text in texts)))


def write_all(fd: int, data: bytes) -> None:
    """Write everything to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def describe(error: BaseException) -> str:
    """``Type: message`` of an exception whose class may be hostile or broken."""
    name = type.__getattribute__(type(error), "__name__")
    try:
        message = str(error)
    except BaseException:
        message = ""
    return f"{name}: {message}"[:300] if message else str(name)[:300]
