"""A harness: runs a program, and then brings back files that it left. Standard library alone.

The payload is the line of JSON and the files' bytes of the sandbox's ``execute`` jobs, with the names to
``fetch``, and for Python with the length of the ``source``, which comes before the files. The result is one
size for each name to fetch, in their order, and then the bytes of the files. It holds no names: a program can
forge the result, and the content of its own files is all that it can change.
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

_MOST_BYTES = 48 << 20
SIZE = struct.Struct("<Q")
"""The form of each size; the runner reads the same."""
ABSENT = (1 << 64) - 1
"""The size of a file that is not there."""


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run what ``payload`` says."""
    line, _, rest = payload.partition(b"\n")
    request: dict[str, Any] = json.loads(line)
    fcntl.fcntl(result_fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    size = request.get("source", 0)
    _put(request["files"], memoryview(rest)[size:])
    os.environ.update(request["environment"])
    if request["argv"]:
        _execute(request["argv"], request["fetch"], result_fd)
    try:
        _run(rest[:size])
    finally:
        for each in gc.get_objects():  # files that the program has not closed yet
            if isinstance(each, io.TextIOWrapper | io.BufferedWriter) and not each.closed and each.writable():
                each.flush()
        _tell(result_fd, request["fetch"])


def _run(source: bytes) -> None:
    scope = sys.modules["__main__"].__dict__
    path = scope["__file__"]
    with open(path, "wb") as file:
        file.write(source)
    sys.path.insert(0, os.path.dirname(path))
    exec(compile(source, path, "exec", dont_inherit=True), scope)


def _execute(argv: list[str], fetch: list[str], result_fd: int) -> NoReturn:
    """Execute a program as a child, and end as it ended."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and programs would inherit that
        signal.signal(number, signal.SIG_DFL)
    pid = os.posix_spawn(argv[0], argv, os.environ)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _tell(result_fd, fetch)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def _put(entries: list[tuple[str, int]], data: memoryview) -> None:
    at = 0
    for name, size in entries:
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as file:
            file.write(data[at : at + size])
        at += size


def _tell(result_fd: int, fetch: list[str]) -> None:
    """Write the files that are there, regular, and not too large together."""
    sizes: list[int] = []
    parts: list[bytes] = []
    left = _MOST_BYTES
    for name in fetch:
        sizes.append(ABSENT)
        try:
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
