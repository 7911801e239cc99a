"""In the sandbox: import a program's source as the module ``main``, from a real file."""

from __future__ import annotations

import contextlib
import linecache
import marshal
import os
import sys
from types import CodeType, ModuleType
from typing import Any

# Longer code is not sent. It is written before the judge reads, so it must fit into the pipe's buffer.
MAX_CODE_BYTES = 32 << 10
_INT_DIGITS = 100_000
_MAX_MESSAGE = 300


# Not ``__main__``: a program whose functions are tested is imported. Its code below
# ``if __name__ == "__main__"`` (read input, run examples or tests of its own, exit) must not run.
_NAME = "main"


class SourceError(Exception):
    """The source is not valid Python. The message contains the place and the reason."""

    def answer(self) -> bytes:
        """Return the answer of a harness for this error."""
        return b"compile_error: " + str(self)[:_MAX_MESSAGE].encode("utf-8", "backslashreplace")


class Loader:
    """A program's source, compiled once and imported any number of times. Raises SourceError."""

    def __init__(self, source: str, code: bytes = b"") -> None:
        """``code``: the ``encoded_code`` of an earlier process with the same source, or empty."""
        self._names = dict(sys.modules["__main__"].__dict__)  # prepared by the fork-server
        path = self._names["__file__"]
        try:
            # compile() gets bytes, as if Python read the file: they may have a byte order mark or an
            # encoding.
            data = source.encode("utf-8", "surrogatepass")
            # For hostile text, compile() raises each of these: null bytes, deep nesting, huge literals.
            self._code = _load_code(code, path) or compile(data, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
            raise SourceError(str(error) or type(error).__name__) from None
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

    def encoded_code(self) -> bytes:
        """Return the code for later processes, after its length in four bytes.

        The length is 0 for long code.
        """
        data = b""
        # The code of a long source is about as long, and encoding it takes memory.
        if self._length <= MAX_CODE_BYTES:
            with contextlib.suppress(ValueError):  # nested too deeply
                data = marshal.dumps(self._code)
            if len(data) > MAX_CODE_BYTES:
                data = b""
        return len(data).to_bytes(4, "little") + data

    def names_in_code(self) -> set[str]:
        """Return all names that the code uses, including those of attributes."""
        found: set[str] = set()
        pending = [self._code]
        while pending:
            code = pending.pop()
            found.update(code.co_names)
            pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        return found

    def load(self, names: dict[str, object] | None = None) -> dict[str, Any]:
        """Import the program and return its globals. It is in ``sys.modules`` as the main module too.

        ``names`` are added to the globals first. Raises whatever the program raises.
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

    def reset(self) -> None:
        """Restore the state that the first ``load`` found, as far as a program can change it here."""
        module = sys.modules["__main__"] = ModuleType("__main__")
        module.__dict__.update(self._names)
        sys.setrecursionlimit(self._depth)
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        os.chdir(os.path.dirname(self._names["__file__"]))


def _load_code(code: bytes, path: str) -> CodeType | None:
    """Return stored code; None if there is none, or if it was compiled for another path."""
    if not code:
        return None
    found: CodeType = marshal.loads(code)
    return found if found.co_filename == path else None


def load_program(source: str) -> dict[str, Any]:
    """Import ``source`` and return its globals. Raises SourceError, or whatever the program raises."""
    return Loader(source).load()


def limit_digits(*texts: str) -> None:
    """Limit the digits of numbers that a checker or interactor may read.

    int() takes time quadratic in the digits. Without a limit, a program could stall a checker by printing
    digits. Longer numbers are allowed if ``texts``, the problem's own, are as long.
    """
    sys.set_int_max_str_digits(max([_INT_DIGITS, *(2 * len(text) for text in texts)]))


def write_all(fd: int, data: bytes) -> None:
    """Write all data to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def describe(error: BaseException) -> str:
    """Return ``Type: message`` for an exception whose class may be hostile or broken."""
    name = type.__getattribute__(type(error), "__name__")
    try:
        message = str(error)
    except BaseException:
        message = ""
    return f"{name}: {message}"[:300] if message else str(name)[:300]
