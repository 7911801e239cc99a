"""The builtin harness ``execute``: the payload says which program to execute, and over which files.

The payload is one line of JSON and then the files' bytes, as ``whetstone.sandbox.execute`` writes them. The
harness puts the files into the private directory. With ``commands`` it then runs those one after another
and writes what they made to the result descriptor: that is for compilers, which are trusted to run no code
of the source. With ``argv`` it turns into that program, which gets no descriptor but the standard ones.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import resource
import signal
import stat
from typing import Any, NoReturn

from . import lockdown
from .files_and_streams import put_files, talk_over
from .task_limit import limit_tasks

# What a result begins with. Only the FAULT of a run can be forged by the program that was to run.
MADE, FAILED, FAULT = b"M", b"F", b"!"
_SAID_BYTES = 16 << 10
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Execute what ``payload`` says."""
    line, _, rest = payload.partition(b"\n")
    request: dict[str, Any] = json.loads(line)
    put_files(request["files"], memoryview(rest))
    os.environ.update(request["environment"])
    for number in _IGNORED_BY_PYTHON:  # a program inherits what is ignored
        signal.signal(number, signal.SIG_DFL)
    if request["commands"]:
        if request["space"]:  # before there is more than one process: each of them is bound by it
            resource.setrlimit(resource.RLIMIT_AS, (request["space"], request["space"]))
        _make(request["commands"], request["keep"], result_fd)
    else:
        if request["processes"]:
            _limit_processes(result_fd)
        _become(request["argv"], result_fd, link_fd)


def _become(argv: list[str], result_fd: int, link_fd: int | None) -> NoReturn:
    """Execute a program in place of this process; a link is its standard input and output."""
    if link_fd is not None:
        talk_over(link_fd)
    fcntl.fcntl(result_fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    try:
        os.execve(argv[0], argv, os.environ)
    except OSError as error:
        os.write(result_fd, FAULT + f"{argv[0]}: {error.strerror}".encode())
        os._exit(127)


def _limit_processes(result_fd: int) -> None:
    if (why := limit_tasks(lockdown.MAX_TASKS, lockdown.TASKS_CEILING)) is not None:
        _tell(result_fd, FAULT + f"no process may be started: {why}".encode())
        os._exit(1)


def _make(commands: list[list[str]], keep: list[str], result_fd: int) -> NoReturn:
    """Run commands until one fails, and hand out what they made, or what the one that failed said."""
    _limit_processes(result_fd)
    fcntl.fcntl(result_fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)  # no compiler writes the answer itself
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    log = os.open("log", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for argv in commands:
        try:
            pid = os.posix_spawn(
                *(argv[0], argv, os.environ),
                file_actions=[(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)],
            )
        except OSError as error:
            _tell(result_fd, FAULT + f"{argv[0]}: {error.strerror}".encode())
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            _tell(result_fd, b"%s%d\n%s" % (FAILED, code, os.pread(log, _SAID_BYTES, 0)))
            os._exit(0)
    _tell(result_fd, MADE + _packed(keep))
    os._exit(0)


def _packed(keep: list[str]) -> bytes:
    """The products, in the form of a payload's files: a line of JSON with names and sizes, and bytes."""
    names = {name for pattern in keep for name in glob.glob(f"**/{pattern}", recursive=True)}
    entries: list[tuple[str, int]] = []
    parts: list[bytes] = []
    for name in sorted(names):
        if stat.S_ISREG(os.lstat(name).st_mode):
            with open(name, "rb") as file:
                parts.append(file.read())
            entries.append((name, len(parts[-1])))
    return json.dumps(entries).encode() + b"\n" + b"".join(parts)


def _tell(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
