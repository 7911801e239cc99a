"""The builtin harness ``sequence``: a Python program that runs on several inputs in turn, in one process.

Each run finds the state of a program's start: its own ``__main__``, its input on a new descriptor 0, and an
unused standard output. Arguments, search path, working directory and recursion limit are reset. Its other
changes (modules, builtins, files) are visible to the next run. After each run the marker and a byte are
written to standard output. The byte is 0 for a run that ended like a program with exit code 0.

The program could write the same bytes. They are only what the program claims.
"""

from __future__ import annotations

import _thread
import json
import os
import sys
import threading
import time
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper

from .program import end_main, set_main
from .run_script import compile_program, write_program

_INPUT_FILE = ".input"
_PRIVATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LAST_DESCRIPTORS = 200  # above the descriptors of programs, and below the limit on open files
SUCCEEDED, FAILED = b"\0", b"\1"


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run the program of ``payload`` on each of its inputs. See ``whetstone.sandbox.script``."""
    line = payload.index(b"\n") + 1
    request = json.loads(payload[:line])
    view = memoryview(payload)
    at = line + request["source"]
    runs = _RunLoop(payload[line:at], bytes.fromhex(request["marker"]), result_fd)
    for size in request["inputs"]:
        runs.run(view[at : at + size])
        runs.reset()
        at += size
        # The rest runs in another process when half of the CPU time is used. No run may fail because of the
        # time of earlier runs.
        if runs.has_leftovers() or time.process_time() > request["cpu_s"] / 2:
            return


class _RunLoop:
    """The process of the runs, with the state that each run starts from."""

    def __init__(self, source: bytes, marker: bytes, result_fd: int) -> None:
        self._names = dict(sys.modules["__main__"].__dict__)
        set_main(self._names)
        self._directory = os.path.dirname(self._names["__file__"])
        write_program(source, self._names["__file__"])
        sys.path.insert(0, self._directory)
        self._code = compile_program(source, self._names["__file__"], result_fd)
        self._marker = marker
        self._arguments, self._path = list(sys.argv), list(sys.path)
        self._depth = sys.getrecursionlimit()
        self._error = sys.stderr
        self._encoding, self._errors = sys.stdin.encoding, sys.stdin.errors or "strict"
        file = os.open(_INPUT_FILE, _PRIVATE, 0o600)
        os.unlink(_INPUT_FILE)
        self._input = _LAST_DESCRIPTORS
        self._output = _LAST_DESCRIPTORS + 1
        os.dup2(file, self._input, inheritable=False)
        os.close(file)
        os.dup2(1, self._output, inheritable=False)

    def run(self, data: memoryview) -> None:
        """Run the program on one input, and write how it ended."""
        self._set_input(data)
        ended = FAILED
        try:
            exec(self._code, sys.modules["__main__"].__dict__)
            ended = SUCCEEDED
        except SystemExit as stop:
            if stop.code is None or (type(stop.code) is int and stop.code == 0):
                ended = SUCCEEDED
        except BaseException:
            pass  # a failed run is repeated alone, and its error is reported there
        if not _finish_program():
            ended = FAILED
        os.write(self._output, self._marker + ended)

    def _set_input(self, data: memoryview) -> None:
        """Make ``data`` the content of descriptor 0."""
        os.ftruncate(self._input, 0)
        at = 0
        while at < len(data):
            at += os.pwrite(self._input, data[at:], at)
        os.lseek(self._input, 0, os.SEEK_SET)
        os.dup2(self._input, 0)

    def reset(self) -> None:
        """Restore the state that a program finds at its start."""
        os.dup2(self._output, 1)
        sys.stdin = sys.__stdin__ = self._text_stream(BufferedReader(FileIO(0, "r", False)), "r")
        sys.stdout = sys.__stdout__ = self._text_stream(BufferedWriter(FileIO(1, "w", False)), "w")
        sys.stderr = sys.__stderr__ = self._error
        sys.argv, sys.path = list(self._arguments), list(self._path)
        sys.setrecursionlimit(self._depth)
        os.chdir(self._directory)
        set_main(self._names)

    def _text_stream(self, stream: BufferedReader | BufferedWriter, mode: str) -> TextIOWrapper:
        """Return a standard stream like that of the interpreter."""
        stream.raw.name = "<stdin>" if mode == "r" else "<stdout>"  # pyright: ignore[reportAttributeAccessIssue]
        text = TextIOWrapper(stream, self._encoding, self._errors, "\n")
        text.mode = mode  # pyright: ignore[reportAttributeAccessIssue]
        return text

    def has_leftovers(self) -> bool:
        """Return whether a run left threads, or work for the interpreter's exit, that would affect the next
        run."""
        return bool(_thread._count() or threading._threading_atexits)  # pyright: ignore


def _finish_program() -> bool:
    """Do what Python does at the end of a program, as far as the process can continue. Returns False if
    stdout failed."""
    if _thread._count():  # pyright: ignore
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
    return end_main()
