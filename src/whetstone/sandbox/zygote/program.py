"""Run a harness in a child as Python runs a script: exceptions, exit, exit code."""

from __future__ import annotations

import _thread
import atexit
import builtins
import contextlib
import gc
import importlib.machinery
import io
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

Harness = Callable[[bytes, int, "int | None"], None]
Rehearsal = tuple[int, bytes, bytes, bytes]
"""A typical run: the number of its harness, its payload, what it receives on its link, and a part of the last
message that it sends there."""
Leave = Callable[[int], NoReturn]
"""A function that ends the process with an exit code."""

PROGRAM_FILE = "main.py"
# Files whose content a second flush does not write again. Classes of programs may do anything.
_WRITERS = frozenset({io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom})
# The frames of the harness are below those of a program. They must not count towards its recursion limit.
_HARNESS_FRAMES = 40


def prepare_main(directory: str) -> None:
    """Make the ``__main__`` of all programs, as for ``directory``/main.py.

    The directory itself is not added to ``sys.path`` here. Otherwise the fork-server's own imports would
    search the files of runs.
    """
    path = os.path.join(directory, PROGRAM_FILE)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    names: dict[str, Any] = {
        "__file__": path,
        "__cached__": None,
        "__builtins__": builtins,
        "__loader__": loader,
    }
    if "__annotations__" in vars(sys.modules["__main__"]):  # until Python 3.13
        names["__annotations__"] = {}
    set_main(names)
    sys.argv = [path]
    sys.orig_argv = [sys.executable, path]
    sys.setrecursionlimit(sys.getrecursionlimit() + _HARNESS_FRAMES)


def set_main(names: dict[str, Any]) -> dict[str, Any]:
    """Make a new ``__main__`` with ``names``, and return its dictionary.

    A program runs in one that its own process has made: objects of the fork-server are frozen, and the
    garbage collector frees nothing that they refer to.
    """
    module = types.ModuleType("__main__")
    module.__dict__.update(names)
    if "__annotations__" in names:
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    return module.__dict__


def run_harness(
    main: Harness,
    own_files: frozenset[str],
    payload: bytes,
    result_fd: int,
    link_fd: int | None,
    leave: Leave,
) -> NoReturn:
    """Call a harness, and end the process with the exit code of Python, whatever happens.

    ``own_files`` are the source files of the harness. Their frames are left out of tracebacks.
    """
    code = 1
    try:
        try:
            main(payload, result_fd, link_fd)
            code = 0
        except SystemExit as stop:
            code = _exit_code(stop)
        except KeyboardInterrupt as error:
            _report(error, own_files)
            code = 128 + signal.SIGINT
        except BaseException as error:
            _report(error, own_files)
        if not _finish_interpreter():
            code = 120  # like Python when standard output could not be flushed
        if code == 128 + signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        leave(code)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def _report(error: BaseException, own_files: frozenset[str]) -> None:
    """Pass an uncaught exception to the program's excepthook, without the frames of the harness."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in own_files:
        frames = frames.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(frames), frames)
    except BaseException:
        # A broken hook must not change how the program ended.
        sys.__excepthook__(type(error), error, frames)


def _finish_interpreter() -> bool:
    """Do what Python does before it exits: join threads, and end the program. Returns False if stdout failed.

    Each step is skipped if there is nothing to do, because a call into unused code copies pages.
    """
    # The interpreter calls these two itself. They have no public names.
    if _thread._count() or threading._threading_atexits:  # pyright: ignore
        threading._shutdown()  # pyright: ignore
    return end_main()


def end_main() -> bool:
    """Run atexit's functions, flush, and free what the program has left in ``__main__``, as Python does.
    Returns False if stdout failed.

    Finalizers flush open files and wrappers, and still find the names that they use.
    """
    if atexit._ncallbacks():  # pyright: ignore
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    flushed = flush_streams()
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    main = sys.modules.pop("__main__", None)
    # Something outside, such as a signal handler, may keep the names. Nothing would then finalize these.
    for value in list(getattr(main, "__dict__", {}).values()):
        if type(value) in _WRITERS:
            with contextlib.suppress(BaseException):
                value.flush()
    main = value = None
    gc.collect()
    flush_streams()  # for the output of finalizers; as in Python, only the first flush decides
    return flushed


def flush_streams() -> bool:
    """Flush standard output and standard error. Returns False if standard output failed."""
    flushed = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)  # a program may have deleted it
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            flushed = flushed and name != "stdout"
    return flushed
