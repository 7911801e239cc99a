"""Two seccomp filters: one for everything that a fork-server needs, and one for programs.

The first is an allow-list. It is installed once and inherited, so a run does not pay for it. The second only
removes the few calls that start and supervise a run. It is installed as the last step of a run.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Iterable, Sequence
from functools import partial

from . import kernel
from .syscall_numbers import EXECUTING, HARMLESS, X86_64, audit_arch, number

_INSTRUCTION = struct.Struct("=HBBI")
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NR_OFFSET, _ARCH_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_X32_BIT = 0x40000000

_CLONE_SIGNAL = 0xFF
_CLONE_THREAD = 0x00010000
_CLONE_NEW_ANY = 0x7E020000  # mount, cgroup, uts, ipc, user, pid and net namespaces
# A child must be neither a sibling of its parent, which would be a child of the fork-server, nor traced.
_CLONE_PARENT, _CLONE_PTRACE, _CLONE_UNTRACED = 0x8000, 0x2000, 0x800000
_NO_PLAIN_CHILD = _CLONE_NEW_ANY | _CLONE_PARENT | _CLONE_PTRACE | _CLONE_UNTRACED
_AF_UNIX, _SOCK_STREAM, _SOCK_FLAGS = 1, 1, 0o2004000
# F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY: each can send a signal to another process.
_SIGNALLING_FCNTL = (8, 10, 15, 1024, 1026)
# F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW.
_LOCKING_FCNTL = (6, 7, 37, 38)
_RWF_NOWAIT = 8
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: what isatty and set_blocking use.
_HARMLESS_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_PR_SET_NAME, _PR_GET_NAME = 15, 16
_PRIO_PROCESS = 0
_O_TMPFILE = 0o20000000  # a file without a name: inotify does not report its creation
# The additional calls of the process that forks the runs. A program gets some of them, with restrictions.
TEMPLATE_CALLS = (
    *("clone", "fork", "vfork", "kill", "tgkill", "prctl", "prlimit64"),
    *("sendmsg", "recvmsg", "pidfd_open", "capset", "inotify_init1", "inotify_add_watch"),
)
# The additional system calls of the supervisor.
SUPERVISOR_CALLS = ("mount", "umount2")
# The additional system calls of a sandbox that executes programs.
EXECUTING_CALLS = tuple(EXECUTING)
# A timer sends the signal that is named in memory, where a filter cannot look. SIGCONT would continue a
# session that is stopped between calls. Python programs have no use for these timers; compiled ones may have
# them, because they are never stopped.
TIMER_CALLS = ("timer_create",)
# Landlock checks opening and naming of files, but not changes of their attributes by path, and truncation
# only since version 3. Where the files of the host are visible, these calls are therefore forbidden. Without
# a jail a run is identified by its process group, so no process may leave it.
_HARMFUL_WITHOUT_JAIL = (
    *("setsid", "setpgid"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "truncate"),
)
_ACCESS_MODE_AND_TRUNCATE = 0o1003

Code = list[tuple[int, int, int, int]]


def _ret(action: int) -> Code:
    return [(_RETURN, 0, 0, action)]


def _fail(error: int) -> Code:
    return _ret(_ERRNO | error)


def _argument(index: int) -> Code:
    # Only the lower half is compared: every argument checked here is an int or has its flags there.
    return [(_LOAD, 0, 0, _ARGUMENTS_OFFSET + 8 * index)]


def _allow_if_argument_in(index: int, values: tuple[int, ...], error: int) -> Code:
    code = _argument(index)
    for value in values:
        code += [(_EQUAL, 0, 1, value), *_ret(_ALLOW)]
    return code + _fail(error)


def _fail_if_argument_in(index: int, errors: dict[int, int]) -> Code:
    """Return code that fails for some values of an argument. ``errors`` maps values to error numbers; 0
    pretends success."""
    code = _argument(index)
    for value, error in errors.items():
        code += [(_EQUAL, 0, 1, value), *_fail(error)]
    return code + _ret(_ALLOW)


def _allow_local_stream() -> Code:
    """Return code that allows only connected streams. A datagram socket could send to any address of the
    host."""
    types = (_SOCK_STREAM, _SOCK_STREAM | 0o4000, _SOCK_STREAM | 0o2000000, _SOCK_STREAM | _SOCK_FLAGS)
    check = [*_argument(0), (_EQUAL, 1, 0, _AF_UNIX), *_fail(errno.EPERM)]
    return check + _allow_if_argument_in(1, types, errno.EPERM)


def _pretend_to_lock() -> Code:
    """Return code for fcntl, which pretends to grant locks and sets none.

    A lock is visible to every sandbox that can open the file: the standard library, a device. A filter cannot
    know which file a descriptor refers to.
    """
    errors = {**dict.fromkeys(_LOCKING_FCNTL, 0), **dict.fromkeys(_SIGNALLING_FCNTL, errno.EPERM)}
    return _fail_if_argument_in(1, errors)


def _local_sockets() -> Code:
    """Return code that allows streams between the processes of a run. Setting an option is pretended."""
    code = _on_call("socket", _allow_local_stream()) + _on_call("setsockopt", _fail(0))
    for name in ("bind", "listen", "accept", "accept4", "connect"):
        code += _on_call(name, _ret(_ALLOW))
    return code


def _pretend_to_set_priority() -> Code:
    """Return code that pretends to set the caller's own priority, and refuses that of other processes."""
    own = [*_argument(0), (_EQUAL, 0, 3, _PRIO_PROCESS), *_argument(1), (_EQUAL, 0, 1, 0), *_fail(0)]
    return own + _fail(errno.EPERM)


def _allow_threads_only() -> Code:
    return [*_argument(0), (_ANY_BIT, 0, 1, _CLONE_THREAD), *_ret(_ALLOW), *_fail(errno.EPERM)]


def _allow_plain_children() -> Code:
    """Return code for clone. The end of a child may send its parent only SIGCHLD: SIGCONT would continue the
    parent."""
    signal_of_end = [(_AND, 0, 0, _CLONE_SIGNAL), (_EQUAL, 1, 0, 0), (_EQUAL, 0, 1, int(signal.SIGCHLD))]
    plain = [*_argument(0), (_ANY_BIT, 0, 1, _NO_PLAIN_CHILD), *_fail(errno.EPERM)]
    return [*plain, *signal_of_end, *_ret(_ALLOW), *_fail(errno.EPERM)]


def _pretend_to_set_sigchld() -> Code:
    """Return code that pretends to set SIGCHLD. If a process ignored it, its children and their CPU time
    would vanish."""
    handler_is_null = [*_argument(1), (_EQUAL, 1, 0, 0), *_fail(0)]
    upper_half_too = [(_LOAD, 0, 0, _ARGUMENTS_OFFSET + 12), (_EQUAL, 1, 0, 0), *_fail(0)]
    setting = [*handler_is_null, *upper_half_too]
    return [*_argument(0), (_EQUAL, 0, len(setting), signal.SIGCHLD), *setting, *_ret(_ALLOW)]


def _fail_if_truncating_on_read(index: int) -> Code:
    """Return code that refuses O_TRUNC for reading. It empties a file that the first versions of Landlock
    only allow to read."""
    compare = (_AND, 0, 0, _ACCESS_MODE_AND_TRUNCATE), (_EQUAL, 0, 1, os.O_TRUNC)
    return [*_argument(index), *compare, *_fail(errno.EPERM), *_ret(_ALLOW)]


def _allow_own_process_only(own_pid: int) -> Code:
    """Return code that allows kill, tgkill and prlimit64 for the own process id, and prlimit64 for 0. The id
    occurs once in the code."""
    prlimit64, kill, tgkill = (number(name) or 0 for name in ("prlimit64", "kill", "tgkill"))
    compare = [(_EQUAL, 2, 0, prlimit64), (_EQUAL, 3, 0, kill), (_EQUAL, 2, 6, tgkill)]
    zero_allowed = [*_argument(0), (_EQUAL, 2, 1, 0)]
    return [
        *compare,
        *zero_allowed,
        *_argument(0),
        (_EQUAL, 0, 1, own_pid),
        *_ret(_ALLOW),
        *_fail(errno.EPERM),
    ]


def _fail_if_any_bit(index: int, bits: int, error: int) -> Code:
    return [*_argument(index), (_ANY_BIT, 0, 1, bits), *_fail(error), *_ret(_ALLOW)]


def _on_call(name: str, block: Code) -> Code:
    """Return code that runs ``block`` if the loaded number is that of ``name``. Empty if this machine has no
    such call."""
    nr = number(name)
    return [] if nr is None else [(_EQUAL, 0, len(block), nr), *block]


def _on_calls(names: Sequence[str], block: Code) -> Code:
    """Return code that runs ``block`` if the call is one of ``names``."""
    numbers = [nr for nr in map(number, names) if nr is not None]
    jumps = [(_EQUAL, len(numbers) - 1 - at, 0, nr) for at, nr in enumerate(numbers)]
    # Each comparison jumps over those after it. The last one jumps over the block if it fails.
    return [*jumps[:-1], (_EQUAL, 0, len(block), numbers[-1]), *block]


def template_filter_code(more: Iterable[str], *, local_sockets: bool = False) -> Code:
    """Return the code of the filter for a fork-server and its runs: harmless calls and ``more``. Other calls
    fail with ENOSYS.

    Calls of a foreign architecture (and x32) kill the process, because their numbers have other meanings.
    """
    arch = audit_arch()
    code: Code = [(_LOAD, 0, 0, _ARCH_OFFSET), (_EQUAL, 1, 0, arch), *_ret(_KILL), (_LOAD, 0, 0, _NR_OFFSET)]
    if arch == X86_64:
        code += [(_AT_LEAST, 0, 1, _X32_BIT), *_ret(_KILL)]
    code += _on_call("fcntl", _pretend_to_lock())
    code += _on_call("flock", _fail(0))
    # All sandboxes share the kernel's cache of a library. No run may query or empty it.
    code += _on_call("fadvise64", _fail(0))
    for name in ("preadv2", "pwritev2"):
        code += _on_call(name, _fail_if_any_bit(5, _RWF_NOWAIT, errno.EOPNOTSUPP))
    code += _on_call("ioctl", _allow_if_argument_in(1, _HARMLESS_IOCTL, errno.ENOTTY))
    code += _on_call("socketpair", _allow_local_stream())
    for name, index in (("open", 1), ("openat", 2)):
        code += _on_call(name, _fail_if_any_bit(index, _O_TMPFILE, errno.EOPNOTSUPP))
    # Lowering the own priority is pretended: otherwise the program would wait, and waiting time must not
    # decide a verdict.
    code += _on_call("setpriority", _pretend_to_set_priority())
    code += _local_sockets() if local_sockets else []
    for name in (*HARMLESS, *more):
        code += _on_call(name, _ret(_ALLOW))
    # EPERM gives a better traceback than ENOSYS: the call exists, and is not permitted.
    for name in (*EXECUTING, *TIMER_CALLS):
        code += _on_call(name, _fail(errno.EPERM))
    return code + _fail(errno.ENOSYS)


def run_filter_code(own_pid: int, *, jailed: bool, processes: bool, keep_children: bool) -> Code:
    """Return the code of the filter for a program. It removes processes, signals to others and descriptor
    passing.

    With ``processes`` some of these remain. If the run is also ``jailed``, it may signal every process that
    it sees. These are its own processes, and the fork-server as the first of the namespace, which ignores
    signals from within.
    """
    code: Code = [(_LOAD, 0, 0, _NR_OFFSET)]
    if processes:
        code += _on_call("clone", _allow_plain_children())
        if keep_children:
            code += _on_call("rt_sigaction", _pretend_to_set_sigchld())
    else:
        code += _on_call("clone", _allow_threads_only())
        for name in ("fork", "vfork"):
            code += _on_call(name, _fail(errno.EPERM))
    if processes and jailed:
        code += _on_calls(("kill", "tgkill"), _fail_if_argument_in(0, {1: errno.EPERM}))
        code += _on_call("prlimit64", _allow_if_argument_in(0, (0, own_pid), errno.EPERM))
    else:
        code += _allow_own_process_only(own_pid)
    code += _on_call("prctl", _allow_if_argument_in(0, (_PR_SET_NAME, _PR_GET_NAME), errno.EPERM))
    kept = ("sendmsg", "recvmsg", "pidfd_open", "capset", "inotify_init1", "inotify_add_watch")
    code += _on_calls(kept, _fail(errno.EPERM))
    if jailed:
        # Each session gets the same share of a core as its supervisor. So a new session is only pretended.
        code += _on_call("setsid", _fail(0))
    else:
        code += _on_call("open", _fail_if_truncating_on_read(1))
        code += _on_call("openat", _fail_if_truncating_on_read(2))
        for name in _HARMFUL_WITHOUT_JAIL:
            code += _on_call(name, _fail(errno.EPERM))
    return code + _ret(_ALLOW)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Filter:
    """A filter in the kernel's form, ready to be installed."""

    def __init__(self, code: Code) -> None:
        self._code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*line) for line in code))
        self._program = _Program(len(code), ctypes.addressof(self._code))

    def install(self, step: str) -> None:
        """Apply the filter permanently to this thread and all its forks."""
        kernel.set_seccomp_filter(ctypes.addressof(self._program), step)


class ProgramFilter(Filter):
    """The filter of ``run_filter_code``. It is built once, and each run fills in its process id."""

    _UNKNOWN_PID = 0x7FFFFFFE

    def __init__(self, *, jailed: bool, processes: bool, keep_children: bool) -> None:
        code = run_filter_code(
            self._UNKNOWN_PID, jailed=jailed, processes=processes, keep_children=keep_children
        )
        super().__init__(code)
        [line] = [i for i, line in enumerate(code) if line[3] == self._UNKNOWN_PID]
        # A run needs two things to let the program signal only itself and to install the filter:
        # `set_pid(pid)`, and the `sock_fprog` as bytes.
        pid_at = ctypes.c_uint32.from_buffer(self._code, line * _INSTRUCTION.size + 4)
        self.set_pid = partial(setattr, pid_at, "value")
        self.program = bytes(memoryview(self._program))
