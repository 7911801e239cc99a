"""What a program meets in the graders of LiveCodeBench and EvalPlus: streams, names and guards like theirs.

This file is never imported here. Its text, and a last line that calls one of the functions at its end, is
the program that is judged, in the judge's sandbox; the code of a reply is a string in it. All that it does
that code could undo, which gains nothing: no expected value is here, and the sandbox's own limits hold.

Graders: LiveCodeBench 28fef95, ``lcb_runner/evaluation/testing_util.py``; EvalPlus 0.3.1, ``evalplus/eval``.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import ModuleType
from typing import Any, cast

_TAKEN = {
    os: "kill system putenv remove removedirs rmdir fchdir setuid fork forkpty killpg rename renames "
    "truncate replace unlink fchmod fchown chmod chown chroot lchflags lchmod lchown getcwd chdir",
    shutil: "rmtree move chown",
    subprocess: "Popen",
    builtins: "quit help",
}
_UNIMPORTABLE = ("ipdb", "joblib", "resource", "psutil", "tkinter")
_STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
_LIVECODEBENCH_NAMES = (
    "".join(f"from {name} import *\n" for name in _STARRED)
    + "".join(f"import {name}\n" for name in _STARRED[:-2])
    + "sys.setrecursionlimit(50000)\n"
)
_MODULE = "tmp_sol"


class TimeoutException(Exception):
    """Raised in the middle of the code when a call has used its time; it may catch it, as it may there."""


def _time_is_up(signum: int, frame: object) -> None:
    raise TimeoutException


def _guard(*more: str) -> None:
    """Take away what the graders take away; ``more`` are names of builtins."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for module, names in _TAKEN.items():
        for name in names.split():
            setattr(module, name, None)
    for name in more:
        setattr(builtins, name, None)
    for name in _UNIMPORTABLE:
        sys.modules[name] = None  # type: ignore[assignment]  # which makes importing it an ImportError


def _execute(code: str, scope: dict[str, Any]) -> None:
    """``exec`` as in a file without the ``__future__`` import of this one."""
    exec(compile(code, "<string>", "exec", dont_inherit=True), scope)


def _within(seconds: float, call: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """The call's value, or TimeoutException. CPU time, where the graders take what the clock shows."""
    signal.signal(signal.SIGPROF, _time_is_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return call(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _refuse_unlike(value: Any) -> None:
    """Raise for what equals no plain value there, but is read as one by whoever calls this."""
    kind = type(value)
    lazy = hasattr(kind, "__next__") or kind in (type({}.keys()), type({}.values()), type({}.items()))
    if lazy or ("numpy" in sys.modules and _holds_array(value)):
        raise TypeError(f"{kind.__name__}: an iterator or array is not compared by what it holds")


def _holds_array(value: Any) -> bool:
    """Whether an array of numpy's is in it, whose comparison is no truth value."""
    if isinstance(value, (list, tuple)):
        return any(map(_holds_array, cast("list[object]", value)))
    if isinstance(value, dict):
        return any(map(_holds_array, cast("dict[object, object]", value).values()))
    return type(value).__module__ == "numpy" and getattr(value, "size", 1) != 1


class _Bytes:
    """``sys.stdin.buffer``: every line is the first one."""

    def __init__(self, text: str) -> None:
        self.inputs = text.encode()

    def read(self, *arguments: Any) -> bytes:
        return self.inputs

    def readline(self, *arguments: Any) -> bytes:
        return self.inputs.split(b"\n")[0] + b"\n"


class _Input:
    """``sys.stdin`` while the program runs: a file of text, but that nothing iterates over it."""

    def __init__(self, text: str) -> None:
        self.inputs = text
        self._file = io.StringIO(text)
        self.buffer = _Bytes(text)

    def read(self, *arguments: Any) -> str:
        return self.inputs

    def readline(self, *arguments: Any) -> str:
        return self._file.readline(*arguments)

    def readlines(self, *arguments: Any) -> list[str]:
        return self.inputs.split("\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _patch(stream: Any, text: str) -> None:
    """Of the stream that ``from sys import stdin`` binds three methods read the input; all else is empty.

    Its lines have no ends, and where there is none left, StopIteration is raised.
    """
    lines = iter(text.split("\n"))
    stream.read = lambda *arguments: text  # pyright: ignore[reportUnknownLambdaType]
    stream.readline = lambda *arguments: next(lines)  # pyright: ignore[reportUnknownLambdaType]
    stream.readlines = lambda *arguments: text.split("\n")  # pyright: ignore[reportUnknownLambdaType]


def _wrapped(code: str) -> str:
    """The program as the body of a function, after its imports, as LiveCodeBench calls it.

    A last ``if __name__ == '__main__'`` is taken for its body. Code that does not parse stays as it is.
    """
    try:
        body = ast.parse(code).body
        last = body[-1] if body else None
        if isinstance(last, ast.If) and ast.unparse(last.test) == "__name__ == '__main__'":
            body = [*body[:-1], *last.body]
        imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        rest = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
        nothing = ast.arguments([], [], None, [], [], None, [])
        function = ast.FunctionDef("wrapped_function", nothing, rest, [], lineno=-1)
        return "\n".join([_LIVECODEBENCH_NAMES, *map(ast.unparse, imports), ast.unparse(function)])
    except Exception:
        return code


def livecodebench_stdin(code: str) -> None:
    """Read the input, run ``code`` over it, and write what it has printed if it ended well."""
    out = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    printed = io.StringIO()
    _guard()
    module = ModuleType(_MODULE, "")
    program = _wrapped(code)
    _execute(program, module.__dict__)  # its imports, and the function
    if "class Solution" in program:
        raise AttributeError("Solution")  # there the class is looked for outside the function that it is in
    _patch(sys.stdin, text)
    sys.stdin, sys.stdout = _Input(text), printed  # type: ignore[assignment]
    with contextlib.suppress(SystemExit):
        module.__dict__["wrapped_function"]()
    data = printed.getvalue().encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(out, data) :]
    os._exit(0)


class LiveCodeBenchCalls:
    """One object of ``class Solution`` (or the module itself), whose method is called again and again."""

    def __init__(self, code: str, name: str, seconds: float) -> None:
        _guard()
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        module = ModuleType(_MODULE, "")
        text = f"{_LIVECODEBENCH_NAMES}\n\n{code}"
        _within(seconds, _execute, (text, module.__dict__))
        self._method = getattr(module.__dict__["Solution"]() if "class Solution" in text else module, name)
        self._seconds = seconds

    def call(self, *arguments: Any) -> Any:
        """What the method returns."""
        value = _within(self._seconds, self._method, arguments)
        _refuse_unlike(value)
        return value


class _WriteOnly(io.StringIO):
    """The stream that EvalPlus gives for all three: nothing can be read from it."""

    def read(self, *arguments: Any) -> str:
        raise OSError

    def readline(self, *arguments: Any) -> str:  # type: ignore[override]
        raise OSError

    def readlines(self, *arguments: Any) -> list[str]:
        raise OSError

    def readable(self) -> bool:
        return False


class EvalplusCalls:
    """The function ``name`` of ``code``, called again and again; ``seconds`` is the time of each call."""

    def __init__(self, code: str, name: str, oracle: str | None, seconds: float | Sequence[float]) -> None:
        _guard("exit", "open")
        self._swallow()
        scope: dict[str, Any] = {}
        _execute(code, scope)
        self._function = scope[name]
        self._oracle = oracle
        self._seconds = iter(seconds) if isinstance(seconds, Sequence) else itertools.repeat(seconds)

    def _swallow(self) -> None:
        sys.stdin = sys.stdout = sys.stderr = _WriteOnly()

    def call(self, *arguments: Any) -> Any:
        """What the function returns, as a plain value whose comparison comes to the same as the object's."""
        self._swallow()
        value = _within(next(self._seconds), self._function, arguments)
        if self._oracle == "not_none":
            return value if isinstance(value, bool) else value is not None
        if self._oracle == "same_set" and type(value) not in (list, tuple, set, frozenset, dict, str):
            return set(value)  # which is what is compared; lists and tuples may also be near
        _refuse_unlike(value)
        if isinstance(value, float) and type(value) is not float and value - value == 0:
            # numpy's: equal where the number is, but of another type, so that no tolerance is for it.
            return Fraction(float(value))
        return value
