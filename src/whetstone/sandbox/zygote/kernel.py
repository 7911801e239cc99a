"""Linux system calls that Python does not offer, through ctypes. Every refusal names its step."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from .syscall_numbers import number

PROT_READ, PROT_WRITE, PROT_EXEC = 1, 2, 4
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND = 32, 1024, 2048, 4096
MS_REC, MS_PRIVATE, MS_RELATIME = 16384, 1 << 18, 1 << 21
MNT_DETACH = 2

CAP_KILL, CAP_SYS_ADMIN, CAP_CHECKPOINT_RESTORE = 5, 21, 40
# CHOWN, DAC_OVERRIDE, FOWNER, FSETID: what overlayfs does in the name of the process that mounts it.
CAPS_OVER_FILES = 0, 1, 3, 4
IN_CREATE, IN_DELETE, IN_MOVED = 0x100, 0x200, 0xC0
_IN_ONESHOT, _IN_FLAGS = 0x80000000, os.O_NONBLOCK | os.O_CLOEXEC

THREAD_STACK_BYTES = 8 << 20
_CAPABILITY_VERSION_3 = 0x20080522
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV, _MOUNT_ATTR_IDMAP = 2, 4, 0x100000
_MAP_PRIVATE_ANONYMOUS, _MREMAP_MAYMOVE_FIXED = 0x22, 3


class StepRefused(Exception):
    """The kernel, or a container's policy, refused one step of the confinement."""


# PyDLL keeps the interpreter's lock during the call. A fork then needs none of Python's hooks, which halves
# its cost because they touch many pages. All other calls here are short.
_libc = ctypes.PyDLL(None, use_errno=True)

# Every run makes these calls. Without conversions and errno they touch a quarter of the pages.
_plain = ctypes.PyDLL(None)
fork = _plain.fork
"""fork(2) by the C library's function alone. Returns 0 in the child, the child's process id in the parent, or
-1."""
prctl_now = _plain.prctl
"""prctl(2) with three arguments: ints, or bytes for a pointer. Returns 0 for success."""
pause = _plain.pause
"""pause(2)."""
read_now = _plain.read
"""read(2) into a buffer of a given length. Returns the number of bytes, or -1."""
_capset_now = _plain.capset
wait_id = _plain.waitid
"""waitid(2). Returns -1 if there is no child, without an exception."""


def _function(name: str, *arguments: Any) -> Any:
    function = _libc[name]
    function.argtypes = arguments
    function.restype = ctypes.c_int
    return function


_ulong = ctypes.c_ulong
_mount = _function("mount", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, _ulong, ctypes.c_char_p)
_umount2 = _function("umount2", ctypes.c_char_p, ctypes.c_int)
_unshare = _function("unshare", ctypes.c_int)
_prctl = _function("prctl", ctypes.c_int, _ulong, _ulong, _ulong, _ulong)
_capset = _function("capset", ctypes.c_void_p, ctypes.c_void_p)
_inotify_init1 = _function("inotify_init1", ctypes.c_int)
_inotify_add_watch = _function("inotify_add_watch", ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_syscall2 = _function("syscall", ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p)
_mprotect = _function("mprotect", _ulong, ctypes.c_size_t, ctypes.c_int)
_madvise = _function("madvise", _ulong, ctypes.c_size_t, ctypes.c_int)
_munmap = _function("munmap", _ulong, ctypes.c_size_t)
_mmap = _function("mmap", _ulong, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_mremap = _function("mremap", _ulong, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, _ulong)
_mmap.restype = _mremap.restype = ctypes.c_long
_syscall5 = _function("syscall", ctypes.c_long, _ulong, _ulong, _ulong, _ulong, _ulong)

_capability_header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
_CAPABILITY_HEADER, _NO_CAPABILITIES = bytes(_capability_header), bytes(24)


def refused_by(step: str, error: OSError) -> StepRefused:
    """Return ``error`` as the refusal of a step."""
    return StepRefused(f"{step}: {error.strerror or error}")


def _refused(step: str) -> StepRefused:
    return StepRefused(f"{step}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Call mount(2)."""
    kind_bytes = kind.encode() if kind else None
    if _mount(os.fsencode(source), os.fsencode(target), kind_bytes, flags, options.encode() or None):
        raise _refused(f"mount on {target}")


def unmount(target: str) -> None:
    """Detach the mount at ``target`` at once, even if it is in use."""
    if _umount2(os.fsencode(target), MNT_DETACH):
        raise _refused(f"unmount {target}")


def unmount_unused(target: str) -> None:
    """Unmount the mount at ``target``. Refused if a process uses it."""
    if _umount2(os.fsencode(target), 0):
        raise _refused(f"unmount {target}")


def clone_mount(path: str) -> int:
    """Return a descriptor of a mount of the folder ``path`` that is nowhere yet: see ``place_mount``."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    return system_call("open_tree", (_AT_FDCWD, ctypes.addressof(name), flags), f"a mount of {path}")


def restrict_mount(mount_fd: int, user_namespace: int | None) -> None:
    """Forbid devices and set-user-id programs in a mount, and map its owners as a user namespace does."""
    flags = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
    if user_namespace is not None:
        flags |= _MOUNT_ATTR_IDMAP
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, user_namespace or 0)
    empty, size = ctypes.create_string_buffer(1), ctypes.sizeof(attributes)
    arguments = (mount_fd, ctypes.addressof(empty), _AT_EMPTY_PATH, ctypes.addressof(attributes), size)
    system_call("mount_setattr", arguments, "attributes of a mount")


def place_mount(mount_fd: int, target: str) -> None:
    """Mount a ``clone_mount`` at ``target``."""
    empty, name = ctypes.create_string_buffer(1), ctypes.create_string_buffer(os.fsencode(target))
    arguments = (mount_fd, ctypes.addressof(empty), _AT_FDCWD, ctypes.addressof(name))
    system_call("move_mount", (*arguments, _MOVE_MOUNT_F_EMPTY_PATH), f"mount on {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """Call pivot_root(2)."""
    if _syscall2(number("pivot_root"), os.fsencode(new_root), os.fsencode(put_old)):
        raise _refused("pivot_root")


def unshare(flags: int, step: str) -> None:
    """Move this process into fresh namespaces of the kinds in ``flags``."""
    if _unshare(flags):
        raise _refused(step)


def prctl(option: int, argument: int, step: str) -> None:
    """Call prctl(2) with one argument."""
    if _prctl(option, argument, 0, 0, 0):
        raise _refused(step)


def set_seccomp_filter(program_address: int, step: str) -> None:
    """Install a seccomp filter, given the address of a ``sock_fprog``."""
    if _prctl(PR_SET_SECCOMP, 2, program_address, 0, 0):
        raise _refused(step)


def keep_capabilities(*kept: int) -> None:
    """Reduce the permitted and effective sets to these capabilities, or none. The inheritable set becomes
    empty."""
    bits = sum(1 << capability for capability in kept)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    if _capset(_capability_header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)):
        raise _refused("drop capabilities")


def drop_capabilities() -> int:
    """Drop all capabilities with a single call. Returns 0 for success."""
    return _capset_now(_CAPABILITY_HEADER, _NO_CAPABILITIES)


def drop_bounding_set() -> None:
    """Empty the bounding set, so that no later execution can regain a capability."""
    for capability in range(64):
        if _prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            return  # the kernel has no capability with this number


def watch_once(fd: int, path: str, changes: int) -> bool:
    """Make ``fd`` readable after the first of these ``changes`` (IN_…) in a directory. Returns False if the
    kernel refuses."""
    found = _inotify_init1(_IN_FLAGS)
    if found < 0:
        return False
    os.dup2(found, fd, inheritable=False)
    os.close(found)
    return _inotify_add_watch(fd, os.fsencode(path), changes | _IN_ONESHOT) >= 0


def protect(address: int, size: int, rights: int) -> None:
    """Call mprotect(2)."""
    if _mprotect(address, size, rights):
        raise _refused("mprotect")


def advise(address: int, size: int, advice: int, step: str) -> None:
    """Call madvise(2)."""
    if _madvise(address, size, advice):
        raise _refused(step)


def map_anonymous(size: int) -> int:
    """Map fresh private memory of ``size`` bytes, and return its address."""
    address: int = _mmap(0, size, PROT_READ | PROT_WRITE, _MAP_PRIVATE_ANONYMOUS, -1, 0)
    if address == -1:
        raise _refused("mmap")
    return address


def unmap(address: int, size: int) -> None:
    """Call munmap(2)."""
    if size and _munmap(address, size):
        raise _refused("munmap")


def move_mapping(address: int, size: int, target: int) -> None:
    """Move a mapping to ``target``. It replaces the mappings there."""
    if _mremap(address, size, size, _MREMAP_MAYMOVE_FIXED, target) != target:
        raise _refused("mremap")


def system_call(name: str, arguments: tuple[int, ...], step: str) -> int:
    """Make a system call that the C library has no function for, and return its non-negative result.

    It has up to five arguments; pointers are addresses. Raises StepRefused.
    """
    result: int = _syscall5(number(name), *(*arguments, 0, 0, 0, 0, 0)[:5])
    if result < 0:
        raise _refused(step)
    return result


def set_default_thread_stack() -> None:
    """Give threads the usual stack of 8 MiB.

    The C library takes the default from RLIMIT_STACK, which the fork-server raises for the main thread. A C
    library without this call keeps its own default.
    """
    if not hasattr(_libc, "pthread_setattr_default_np"):
        return
    attributes = ctypes.create_string_buffer(256)
    _function("pthread_attr_init", ctypes.c_void_p)(attributes)
    _function("pthread_attr_setstacksize", ctypes.c_void_p, ctypes.c_size_t)(attributes, THREAD_STACK_BYTES)
    _function("pthread_setattr_default_np", ctypes.c_void_p)(attributes)
