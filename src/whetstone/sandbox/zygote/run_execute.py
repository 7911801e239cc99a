"""The builtin harness ``execute``: the payload names the program to execute, and contains files.

The payload is a line of JSON and the bytes of the files, as ``whetstone.sandbox.execute`` writes them. The
harness writes the files to the private directory. With ``commands`` it runs these one after another, and
writes their products to the result descriptor. This is for compilers, which run no code of the source. With
``argv`` it replaces itself by that program, which gets only the standard descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import resource
import signal
import stat
from typing import Any, NoReturn

from . import lockdown
from .files_and_streams import use_as_streams, write_files

# The first byte of a result. Only the FAULT of a run can be forged, by the program itself.
MADE, FAILED, FAULT = b"M", b"F", b"!"
_MAX_MESSAGE_BYTES = 16 << 10
# The limit is found by trying: the kernel does not report its count of a user's processes, which includes
# those of other containers.
_MAX_TASKS = 1 << 22  # no kernel has more tasks than this
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Execute the request in ``payload``."""
    line, _, rest = payload.partition(b"\n")
    request: dict[str, Any] = json.loads(line)
    write_files(request["files"], memoryview(rest))
    if request["directory"]:
        os.chdir(request["directory"])
    os.environ.update(request["environment"])
    for number in _IGNORED_BY_PYTHON:  # a program inherits ignored signals
        signal.signal(number, signal.SIG_DFL)
    if request["commands"]:
        if request["space"]:  # before any other process exists, so that it binds each of them
            resource.setrlimit(resource.RLIMIT_AS, (request["space"], request["space"]))
        _make(request["commands"], request["keep"], result_fd)
    else:
        if request["processes"]:
            _limit_processes(result_fd)
        _become(request["argv"], result_fd, link_fd)


def _become(argv: list[str], result_fd: int, link_fd: int | None) -> NoReturn:
    """Execute a program in place of this process. A link becomes its standard input and output."""
    if link_fd is not None:
        use_as_streams(link_fd)
    fcntl.fcntl(result_fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    try:
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        os.write(result_fd, FAULT + f"{argv[0]}: {error.strerror}".encode())
        os._exit(127)


def _limit_processes(result_fd: int) -> None:
    if (why := _limit_tasks(lockdown.MAX_TASKS, lockdown.TASKS_CEILING)) is not None:
        _write_all(result_fd, FAULT + f"no process may be started: {why}".encode())
        os._exit(1)


def _limit_tasks(more: int, low: int) -> str | None:
    """Allow this process and its children ``more`` tasks beyond those that its user has now.

    A limit that is already ``low`` stays. It is that of the fork-server, whose user has no other processes.
    Returns the reason if that is impossible: the limit does not bind this user (root), or nothing is left to
    allow.
    """
    _, ceiling = resource.getrlimit(resource.RLIMIT_NPROC)
    if ceiling != resource.RLIM_INFINITY and ceiling <= low:
        return None
    highest = _MAX_TASKS if ceiling == resource.RLIM_INFINITY else ceiling
    if _can_start_within(0, ceiling):
        return "no limit on processes binds this user; run as another user than root"
    if not _can_start_within(highest, ceiling):
        return "this user may start no more processes; raise RLIMIT_NPROC or end some"
    refused, enough = 0, highest
    while enough - refused > 1:
        middle = (refused + enough) // 2
        if _can_start_within(middle, ceiling):
            enough = middle
        else:
            refused = middle
    limit = min(enough + more, highest)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
    return None


def _can_start_within(limit: int, ceiling: int) -> bool:
    """Return whether a process can be started under this limit. It ends at once, because it has nothing to
    execute."""
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, ceiling))
    try:
        os.posix_spawn("/", ["/"], {})
    except OSError as error:
        return error.errno != errno.EAGAIN
    return True


def _make(commands: list[list[str]], keep: list[str], result_fd: int) -> NoReturn:
    """Run commands until one fails. Write the products, or the messages of the failed command."""
    _limit_processes(result_fd)
    fcntl.fcntl(result_fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)  # compilers must not write the result
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    log = os.open("log", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for argv in commands:
        try:
            pid = os.posix_spawn(
                *(argv[0], argv, os.environ),
                file_actions=[(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)],
            )
        except OSError as error:
            _write_all(result_fd, FAULT + f"{argv[0]}: {error.strerror}".encode())
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            _write_all(result_fd, b"%s%d\n%s" % (FAILED, code, os.pread(log, _MAX_MESSAGE_BYTES, 0)))
            os._exit(0)
    _write_all(result_fd, MADE + _pack(keep))
    os._exit(0)


def _pack(keep: list[str]) -> bytes:
    """Return the products in the format of the files of a payload: a line of JSON with names and sizes, and
    the bytes."""
    names = {name for pattern in keep for name in glob.glob(f"**/{pattern}", recursive=True)}
    entries: list[tuple[str, int]] = []
    parts: list[bytes] = []
    for name in sorted(names):
        if stat.S_ISREG(os.lstat(name).st_mode):
            with open(name, "rb") as file:
                parts.append(file.read())
            entries.append((name, len(parts[-1])))
    return json.dumps(entries).encode() + b"\n" + b"".join(parts)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
