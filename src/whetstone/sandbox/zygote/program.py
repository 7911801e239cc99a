"""Running a harness in a child the way Python runs a script: its exceptions, its exit, its code."""

from __future__ import annotations

import _thread
import atexit
import builtins
import gc
import importlib.machinery
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn

Harness = Callable[[bytes, int, "int | None"], None]
Rehearsal = tuple[int, bytes, bytes, bytes]
"""An ordinary run: the harness's number, its payload, what it hears on its link, and a part of the last
message that it sends there."""
Leave = Callable[[int], NoReturn]
"""What ends the process, with an exit code."""

PROGRAM_FILE = "main.py"
# The frames below a program's are ours: they must not use up its recursion limit.
_OUR_FRAMES = 40


def prepare_main(directory: str) -> None:
    """Make, once and for all runs, the ``__main__`` that a program will be, as if from ``directory``/main.py.

    Only ``directory`` itself is not put in front of ``sys.path`` here: what we import ourselves would be
    searched for among the files of runs.
    """
    path = os.path.join(directory, PROGRAM_FILE)
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=path,
        __cached__=None,
        __builtins__=builtins,
        __annotations__={},
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = module
    sys.argv = [path]
    sys.orig_argv = [sys.executable, path]
    sys.setrecursionlimit(sys.getrecursionlimit() + _OUR_FRAMES)


def run_harness(
    main: Harness,
    own_files: frozenset[str],
    payload: bytes,
    result_fd: int,
    link_fd: int | None,
    leave: Leave,
) -> NoReturn:
    """Call a harness and leave the process with Python's own exit code, whatever happens.

    ``own_files`` are source files whose frames are ours and stay out of tracebacks.
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
        if not _leave():
            code = 120  # as Python does when standard output could not be flushed
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
    """Hand an uncaught exception to the program's excepthook, without our own frames."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in own_files:
        frames = frames.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(frames), frames)
    except BaseException:
        # A broken hook must not change how the program ended.
        sys.__excepthook__(type(error), error, frames)


def _leave() -> bool:
    """What Python does before it exits: join threads, run atexit, finalize, flush. False if stdout failed.

    Each step only where there is something to do: a call into code that no run has used yet copies pages.
    """
    # Both are what the interpreter itself calls, and have no public name.
    if _thread._count() or threading._threading_atexits:  # pyright: ignore
        threading._shutdown()  # pyright: ignore
    if atexit._ncallbacks():  # pyright: ignore
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    flushed = flush_streams()
    # Files and wrappers that the program left open are flushed by their finalizers.
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    sys.modules["__main__"].__dict__.clear()
    gc.collect(1)
    flush_streams()  # of what finalizers printed; as in Python itself, only the first flush decides
    return flushed


def flush_streams() -> bool:
    """Flush standard output and standard error. False if standard output failed."""
    flushed = True
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)  # a program may have deleted it
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            flushed = flushed and name != "stdout"
    return flushed
