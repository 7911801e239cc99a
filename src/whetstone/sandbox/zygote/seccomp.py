"""Two seccomp filters: what no process of a fork-server needs, and what a program must not do.

The first is an allow-list, installed once and inherited: its cost is not paid per run. The second
only takes away the few calls that start and watch a run, and is installed as a run's last step.
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

_CLONE_THREAD = 0x00010000
_CLONE_NEW_ANY = 0x7E020000  # mount, cgroup, uts, ipc, user, pid and net namespaces
# Not as its own sibling, which would be a child of the fork-server, nor traced.
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
_O_TMPFILE = 0o20000000  # a file without a name, whose making no watch on its directory tells
STEM_CALLS = (
    *("clone", "fork", "vfork", "kill", "tgkill", "prctl", "prlimit64"),
    *("sendmsg", "recvmsg", "pidfd_open", "capset", "inotify_init1", "inotify_add_watch"),
)
"""What the process that forks the runs needs, and a program gets in part or not at all."""
KEEPER_CALLS = ("mount", "umount2")
"""What the process beside it needs."""
EXECUTING_CALLS = tuple(EXECUTING)
"""What a program needs besides where programs are executed."""
# Landlock checks opening and naming files, not changing their attributes by path; truncating it
# checks from its version 3 on. Where the host's files can be named, these calls are therefore closed.
# A run's processes are told by their process group there, so that this is for life.
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
    # The low half decides: every argument checked here is an int or has its flags there.
    return [(_LOAD, 0, 0, _ARGUMENTS_OFFSET + 8 * index)]


def _allow_if_argument_in(index: int, values: tuple[int, ...], error: int) -> Code:
    code = _argument(index)
    for value in values:
        code += [(_EQUAL, 0, 1, value), *_ret(_ALLOW)]
    return code + _fail(error)


def _fail_if_argument_in(index: int, errors: dict[int, int]) -> Code:
    """``errors`` maps values of the argument to error numbers; 0 pretends that the call was made."""
    code = _argument(index)
    for value, error in errors.items():
        code += [(_EQUAL, 0, 1, value), *_fail(error)]
    return code + _ret(_ALLOW)


def _allow_local_stream() -> Code:
    """Only connected streams: a datagram socket could be aimed at any address of the host."""
    types = (_SOCK_STREAM, _SOCK_STREAM | 0o4000, _SOCK_STREAM | 0o2000000, _SOCK_STREAM | _SOCK_FLAGS)
    check = [*_argument(0), (_EQUAL, 1, 0, _AF_UNIX), *_fail(errno.EPERM)]
    return check + _allow_if_argument_in(1, types, errno.EPERM)


def _pretend_to_lock() -> Code:
    """fcntl, whose locks are said to be granted, and are not made.

    A lock is a mark on a file that every sandbox sees which can open it: the standard library, a device. A
    filter cannot tell which file a descriptor is of.
    """
    errors = {**dict.fromkeys(_LOCKING_FCNTL, 0), **dict.fromkeys(_SIGNALLING_FCNTL, errno.EPERM)}
    return _fail_if_argument_in(1, errors)


def _local_sockets() -> Code:
    """Streams between the processes of a run, which nobody else can name. Options are said to be set."""
    code = _on_call("socket", _allow_local_stream()) + _on_call("setsockopt", _fail(0))
    for name in ("bind", "listen", "accept", "accept4", "connect"):
        code += _on_call(name, _ret(_ALLOW))
    return code


def _pretend_to_yield() -> Code:
    """Nothing happens to one's own priority; anybody else's is refused."""
    own = [*_argument(0), (_EQUAL, 0, 3, _PRIO_PROCESS), *_argument(1), (_EQUAL, 0, 1, 0), *_fail(0)]
    return own + _fail(errno.EPERM)


def _allow_threads_only() -> Code:
    return [*_argument(0), (_ANY_BIT, 0, 1, _CLONE_THREAD), *_ret(_ALLOW), *_fail(errno.EPERM)]


def _allow_plain_children() -> Code:
    return [*_argument(0), (_ANY_BIT, 0, 1, _NO_PLAIN_CHILD), *_fail(errno.EPERM), *_ret(_ALLOW)]


def _pretend_to_set_sigchld() -> Code:
    """Leave SIGCHLD as it is: who ignores it has children that vanish, and their CPU time with them."""
    handler_is_null = [*_argument(1), (_EQUAL, 1, 0, 0), *_fail(0)]
    upper_half_too = [(_LOAD, 0, 0, _ARGUMENTS_OFFSET + 12), (_EQUAL, 1, 0, 0), *_fail(0)]
    setting = [*handler_is_null, *upper_half_too]
    return [*_argument(0), (_EQUAL, 0, len(setting), signal.SIGCHLD), *setting, *_ret(_ALLOW)]


def _fail_if_truncating_unread(index: int) -> Code:
    """Opening for reading with O_TRUNC empties a file that Landlock's first versions let one only read."""
    compare = (_AND, 0, 0, _ACCESS_MODE_AND_TRUNCATE), (_EQUAL, 0, 1, os.O_TRUNC)
    return [*_argument(index), *compare, *_fail(errno.EPERM), *_ret(_ALLOW)]


def _only_on_oneself(own_pid: int) -> Code:
    """kill, tgkill and prlimit64 with our own process id, which stands in one place, or prlimit64 with 0."""
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
    """``block`` when the call (its number is loaded) is ``name``; nothing where it does not exist."""
    nr = number(name)
    return [] if nr is None else [(_EQUAL, 0, len(block), nr), *block]


def _on_calls(names: Sequence[str], block: Code) -> Code:
    """``block`` when the call is one of ``names``."""
    numbers = [nr for nr in map(number, names) if nr is not None]
    jumps = [(_EQUAL, len(numbers) - 1 - at, 0, nr) for at, nr in enumerate(numbers)]
    # Each jumps over the comparisons after it; the last one, failing, over the block.
    return [*jumps[:-1], (_EQUAL, 0, len(block), numbers[-1]), *block]


def allow_list(more: Iterable[str], *, local_sockets: bool = False) -> Code:
    """What a process and its children may call at all: harmless calls and ``more``; the rest is ENOSYS.

    A foreign architecture's calls (and x32) kill: their numbers mean something else.
    """
    arch = audit_arch()
    code: Code = [(_LOAD, 0, 0, _ARCH_OFFSET), (_EQUAL, 1, 0, arch), *_ret(_KILL), (_LOAD, 0, 0, _NR_OFFSET)]
    if arch == X86_64:
        code += [(_AT_LEAST, 0, 1, _X32_BIT), *_ret(_KILL)]
    code += _on_call("fcntl", _pretend_to_lock())
    code += _on_call("flock", _fail(0))
    # Every sandbox shares the kernel's cache of a library: none may ask what is in it, or empty it.
    code += _on_call("fadvise64", _fail(0))
    for name in ("preadv2", "pwritev2"):
        code += _on_call(name, _fail_if_any_bit(5, _RWF_NOWAIT, errno.EOPNOTSUPP))
    code += _on_call("ioctl", _allow_if_argument_in(1, _HARMLESS_IOCTL, errno.ENOTTY))
    code += _on_call("socketpair", _allow_local_stream())
    for name, index in (("open", 1), ("openat", 2)):
        code += _on_call(name, _fail_if_any_bit(index, _O_TMPFILE, errno.EOPNOTSUPP))
    # Who yields to others is told that it does, and does not: it would wait, and a wait decides nothing.
    code += _on_call("setpriority", _pretend_to_yield())
    code += _local_sockets() if local_sockets else []
    for name in (*HARMLESS, *more):
        code += _on_call(name, _ret(_ALLOW))
    # "Operation not permitted" is what a traceback is to say, not that there is no such call.
    for name in EXECUTING:
        code += _on_call(name, _fail(errno.EPERM))
    return code + _fail(errno.ENOSYS)


def take_away(own_pid: int, *, jailed: bool, processes: bool, keep_children: bool) -> Code:
    """What a program loses on top: processes, signals to others, descriptor passing.

    With ``processes`` it has some of these. Where it is also ``jailed`` it may signal whom it sees: there are
    only its own processes, and the fork-server as the first, which no signal from within reaches.
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
        code += _only_on_oneself(own_pid)
    code += _on_call("prctl", _allow_if_argument_in(0, (_PR_SET_NAME, _PR_GET_NAME), errno.EPERM))
    kept = ("sendmsg", "recvmsg", "pidfd_open", "capset", "inotify_init1", "inotify_add_watch")
    code += _on_calls(kept, _fail(errno.EPERM))
    if jailed:
        # Each session gets as much of a core as whoever supervises it, so a program is told it has one.
        code += _on_call("setsid", _fail(0))
    else:
        code += _on_call("open", _fail_if_truncating_unread(1))
        code += _on_call("openat", _fail_if_truncating_unread(2))
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
        """Bind this thread, and everything it forks, to the filter for good."""
        kernel.set_seccomp_filter(ctypes.addressof(self._program), step)


class ProgramFilter(Filter):
    """``take_away`` built once, with the process id filled in by each run."""

    _UNKNOWN_PID = 0x7FFFFFFE

    def __init__(self, *, jailed: bool, processes: bool, keep_children: bool) -> None:
        code = take_away(self._UNKNOWN_PID, jailed=jailed, processes=processes, keep_children=keep_children)
        super().__init__(code)
        [line] = [i for i, line in enumerate(code) if line[3] == self._UNKNOWN_PID]
        # What a run needs to let the program signal itself, and nobody else, and to install the filter:
        # ``set_pid(pid)``, and the ``sock_fprog`` as bytes.
        pid_at = ctypes.c_uint32.from_buffer(self._code, line * _INSTRUCTION.size + 4)
        self.set_pid = partial(setattr, pid_at, "value")
        self.program = bytes(memoryview(self._program))
