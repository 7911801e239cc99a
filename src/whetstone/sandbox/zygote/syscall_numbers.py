"""System call numbers of the two architectures we confine, for every call that we name anywhere.

Each entry is ``name: (x86_64, aarch64)``; None where the architecture has no such call (aarch64
never got the old calls without ``at``). The numbers are the kernel's stable interface.
"""

from __future__ import annotations

import os

X86_64 = 0xC000003E
AARCH64 = 0xC00000B7
AUDIT_ARCH = {"x86_64": X86_64, "aarch64": AARCH64}

HARMLESS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "open": (2, None),
    "openat": (257, 56),
    "close": (3, 57),
    "close_range": (436, 436),
    "creat": (85, None),
    "lseek": (8, 62),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents": (78, None),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "umask": (95, 166),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "fgetxattr": (193, 10),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "flistxattr": (196, 13),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "msync": (26, 227),
    "brk": (12, 214),
    "mlock": (149, 228),
    "munlock": (150, 229),
    "mlock2": (325, 284),
    "mlockall": (151, 230),
    "munlockall": (152, 231),
    "mincore": (27, 232),
    "membarrier": (324, 283),
    "futex": (202, 98),
    "futex_waitv": (449, 449),
    "set_robust_list": (273, 99),
    "get_robust_list": (274, 100),
    "rseq": (334, 293),
    "set_tid_address": (218, 96),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "getcpu": (309, 168),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132),
    "pause": (34, None),
    "restart_syscall": (219, 128),
    "select": (23, None),
    "pselect6": (270, 72),
    "poll": (7, None),
    "ppoll": (271, 73),
    "epoll_create": (213, None),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441),
    "eventfd": (284, None),
    "eventfd2": (290, 19),
    "timerfd_create": (283, 85),
    "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87),
    "signalfd": (282, None),
    "signalfd4": (289, 74),
    "time": (201, None),
    "gettimeofday": (96, 169),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "alarm": (37, None),
    "getitimer": (36, 102),
    "setitimer": (38, 103),
    "timer_create": (222, 107),
    "timer_settime": (223, 110),
    "timer_gettime": (224, 108),
    "timer_getoverrun": (225, 109),
    "timer_delete": (226, 111),
    "times": (100, 153),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "gettid": (186, 178),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getgroups": (115, 158),
    "getpgid": (121, 155),
    "getpgrp": (111, None),
    "getsid": (124, 156),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "getpriority": (140, 141),
    "getrlimit": (97, 163),
    "setrlimit": (160, 164),
    "getrusage": (98, 165),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "getrandom": (318, 278),
    "arch_prctl": (158, None),
    "capget": (125, 90),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "shutdown": (48, 210),
    "getsockopt": (55, 209),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
}
"""Calls that a program may make freely: they reach nothing outside of its own process and files."""

LOCAL_SOCKETS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "connect": (42, 203),
    "setsockopt": (54, 208),
}
"""Calls on top where the network and the file system are the run's own: of AF_UNIX streams alone."""

CONDITIONAL: dict[str, tuple[int | None, int | None]] = {
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "socketpair": (53, 199),
    "setpriority": (141, 140),
    "flock": (73, 32),
    "fadvise64": (221, 223),
    "preadv2": (327, 286),
    "pwritev2": (328, 287),
}
"""Calls that a program may make with some arguments only (see ``seccomp``)."""

SET_UP: dict[str, tuple[int | None, int | None]] = {
    "clone": (56, 220),
    "fork": (57, None),
    "vfork": (58, None),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "mount": (165, 40),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "pidfd_open": (434, 434),
    "capset": (126, 91),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "landlock_restrict_self": (446, 446),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "pivot_root": (155, 41),
    "umount2": (166, 39),
    "io_uring_setup": (425, 425),
    "io_uring_register": (427, 427),
}
"""Calls that build the confinement or start runs; a program gets them in part (clone, kill) or not at all."""


EXECUTING: dict[str, tuple[int | None, int | None]] = {
    "execve": (59, 221),
    "execveat": (322, 281),
}
"""Calls on top for programs that are executed: they start another program in place of the caller."""


def audit_arch() -> int:
    """The kernel's name for this machine's architecture; OSError where we have no tables for it."""
    machine = os.uname().machine
    if machine not in AUDIT_ARCH:
        raise OSError(
            f"no system call table for {machine}; programs can be confined on {', '.join(AUDIT_ARCH)}"
        )
    return AUDIT_ARCH[machine]


def number(name: str) -> int | None:
    """The number of a call named in the tables above on this machine, or None where it does not exist."""
    column = 0 if audit_arch() == X86_64 else 1
    for table in (HARMLESS, LOCAL_SOCKETS, CONDITIONAL, SET_UP, EXECUTING):
        if name in table:
            return table[name][column]
    raise KeyError(name)
