"""The builtin harness ``script``: the payload is a Python program, run as ``python main.py`` would run it.

The program is a real ``__main__`` from a real file in the private directory, with the real
descriptors 0, 1 and 2. If its source does not compile, the result is ``COMPILE_ERROR``, the error is
on stderr and the exit code is 1; like all result bytes this is a hint, which a program can forge to
its own disadvantage only.

A payload that begins with a zero byte, which no Python source does, has a line of JSON before the source:
arguments, files and a link (see ``whetstone.sandbox.script``).
"""

from __future__ import annotations

import importlib.machinery
import inspect
import json
import os
import sys
import types

from .files import put_files, talk_over

COMPILE_ERROR = b"compile_error"
WITH_MORE = b"\0"
_FILE_NAME = "main.py"


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run ``payload`` as the program."""
    arguments: list[str] = []
    if payload[:1] == WITH_MORE:
        payload, arguments = _prepared(payload, link_fd)
    path = os.path.join(os.getcwd(), _FILE_NAME)
    with open(path, "wb") as file:
        file.write(payload)
    code = _compiled(payload, path, result_fd)
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=path,
        __cached__=None,
        __builtins__=sys.modules["builtins"],
        __annotations__={},
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    sys.orig_argv = [sys.executable, *sys.argv]
    sys.path.insert(0, os.path.dirname(path))
    sys.setrecursionlimit(sys.getrecursionlimit() + _depth())
    exec(code, module.__dict__)


def _prepared(payload: bytes, link_fd: int | None) -> tuple[bytes, list[str]]:
    """Give the program what its payload names; the source and the arguments."""
    line, _, rest = payload[1:].partition(b"\n")
    request = json.loads(line)
    if link_fd is not None:
        talk_over(link_fd)
    put_files(request["files"], memoryview(rest)[request["source"] :])
    return rest[: request["source"]], request["arguments"]


def _compiled(source: bytes, path: str, result_fd: int) -> types.CodeType:
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError) as error:
        os.write(result_fd, COMPILE_ERROR)
        sys.excepthook(type(error), error.with_traceback(None), None)
        raise SystemExit(1) from None


def _depth() -> int:
    """How many frames below the program's are ours: they must not use up its recursion limit."""
    frame, depth = inspect.currentframe(), 0
    while frame is not None and frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth
