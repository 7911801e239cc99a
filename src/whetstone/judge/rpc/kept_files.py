"""A harness that runs a program and returns files that it wrote. It uses the standard library only.

The payload is that of ``execute`` jobs of the sandbox: a line of JSON and the bytes of the files. The line
also has the names to ``fetch``. For Python it has the length of the ``source``, which precedes the files.

The result is one size for each name to fetch, in their order, and then the bytes of the files. It has no
names, because a program can forge the result. So a program can change only the content of its own files.
"""

from __future__ import annotations

import fcntl
import gc
import io
import json
import os
import signal
import stat
import struct
import sys
from typing import Any, NoReturn

# The result also has the sizes, and must fit in the result file of the sandbox.
_MOST_BYTES = 48 << 20
# The format of each size. ``judge.running`` imports it.
SIZE = struct.Struct("<Q")
# The size of a missing file.
ABSENT = (1 << 64) - 1


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run the program of ``payload``, and write the files to ``result_fd``."""
    line, _, rest = payload.partition(b"\n")
    request: dict[str, Any] = json.loads(line)
    # A child of the program must not inherit the result file.
    fcntl.fcntl(result_fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    size = request.get("source", 0)
    _write_files(request["files"], memoryview(rest)[size:])
    os.environ.update(request["environment"])
    if request["argv"]:
        _run_executable(request["argv"], request["fetch"], result_fd)
    try:
        _run_source(rest[:size])
    finally:
        # The program may not have closed its files, and their buffers would be missing from the result.
        for each in gc.get_objects():
            if isinstance(each, io.TextIOWrapper | io.BufferedWriter) and not each.closed and each.writable():
                each.flush()
        _write_result(result_fd, request["fetch"])


def _run_source(source: bytes) -> None:
    scope = sys.modules["__main__"].__dict__
    path = scope["__file__"]
    with open(path, "wb") as file:
        file.write(source)
    sys.path.insert(0, os.path.dirname(path))
    exec(compile(source, path, "exec", dont_inherit=True), scope)


def _run_executable(argv: list[str], fetch: list[str], result_fd: int) -> NoReturn:
    """Run an executable as a child, and exit with its status or signal."""
    # Python ignores these signals, and a child would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    pid = os.posix_spawn(argv[0], argv, os.environ)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _write_result(result_fd, fetch)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def _write_files(entries: list[tuple[str, int]], data: memoryview) -> None:
    at = 0
    for name, size in entries:
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as file:
            file.write(data[at : at + size])
        at += size


def _write_result(result_fd: int, fetch: list[str]) -> None:
    """Write the regular files among ``fetch``, up to ``_MOST_BYTES`` together."""
    sizes: list[int] = []
    parts: list[bytes] = []
    left = _MOST_BYTES
    for name in fetch:
        sizes.append(ABSENT)
        try:
            # Opening a pipe without O_NONBLOCK would wait for a writer.
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        with open(fd, "rb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode) and os.fstat(fd).st_size <= left:
                parts.append(file.read(left))
                sizes[-1] = len(parts[-1])
                left -= sizes[-1]
    view = memoryview(b"".join((*map(SIZE.pack, sizes), *parts)))
    while view:
        view = view[os.write(result_fd, view) :]
