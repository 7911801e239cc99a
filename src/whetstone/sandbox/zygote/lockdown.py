"""The steps that confine a child, in the only order in which they work."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

from . import jail, kernel, wire
from .landlock import Ruleset
from .profile import Profile
from .seccomp import ProgramFilter

MAX_THREADS = 512
MAX_OPEN_FILES = 256
_ADDRESS_SPACE_SLACK = 4 << 30
_ADDRESS_SPACE_SLACK_OF_RUNTIMES = 1 << 40  # runtimes reserve far more than they use
_UNLIMITED = resource.RLIM_INFINITY
_CEILINGS = {
    kind: resource.getrlimit(kind)[1]
    for kind in (
        *(resource.RLIMIT_AS, resource.RLIMIT_STACK, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE),
        *(resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE),
        resource.RLIMIT_NPROC,
    )
}


@dataclass(frozen=True)
class Confinement:
    """What every child of this fork-server is bound to."""

    profile: Profile
    jailed: bool
    """In namespaces with a root of their own; otherwise in a private directory of the host."""
    uid: int | None
    """The user to become, or None to stay who we are."""
    directory: str
    """The working directory and only writable place."""
    ruleset: Ruleset | None
    program_filter: ProgramFilter


def _limit(kind: int, soft: int, hard: int) -> None:
    ceiling = _CEILINGS[kind]
    if ceiling != _UNLIMITED:
        soft = ceiling if soft == _UNLIMITED else min(soft, ceiling)
        hard = ceiling if hard == _UNLIMITED else min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def set_common_limits() -> None:
    """The backstops that are the same for every run: set once, inherited by each child."""
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES, MAX_OPEN_FILES)
    _limit(resource.RLIMIT_CORE, 0, 0)
    _limit(resource.RLIMIT_MEMLOCK, 0, 0)
    _limit(resource.RLIMIT_MSGQUEUE, 0, 0)


def set_limits(limits: tuple[int, int, int], *, own_uid: bool, execute: bool) -> None:
    """Backstops behind the limits that are measured from outside.

    ``limits`` are CPU seconds, memory bytes and file bytes. Address space gets room beyond the memory
    limit, because only resident memory is to count: reserved space and thread stacks are free.
    """
    cpu_s, memory_bytes, file_bytes = limits
    slack = _ADDRESS_SPACE_SLACK_OF_RUNTIMES if execute else _ADDRESS_SPACE_SLACK
    address_space = 2 * memory_bytes + slack
    _limit(resource.RLIMIT_AS, address_space, address_space)
    _limit(resource.RLIMIT_STACK, memory_bytes, _UNLIMITED)
    _limit(resource.RLIMIT_CPU, cpu_s, cpu_s)
    _limit(resource.RLIMIT_FSIZE, file_bytes, file_bytes)
    if own_uid:  # the kernel counts a user's processes: sharing the user would share the count
        _limit(resource.RLIMIT_NPROC, MAX_THREADS, MAX_THREADS)


def place_descriptors(status_fd: int, *, has_link: bool) -> None:
    """Standard streams at 0-2, result (and link) where ``wire`` says, and nothing else but ``status_fd``."""
    os.dup2(wire.STDIN_FD, 0)
    os.dup2(wire.STDOUT_FD, 1)
    os.dup2(wire.STDERR_FD, 2)
    kernel.close_range(wire.PAYLOAD_FD, wire.STDERR_FD)
    kernel.close_range(wire.LINK_FD + has_link, status_fd - 1)
    kernel.close_range(status_fd + 1, 0xFFFFFFFF)


def confine(rules: Confinement, limits: tuple[int, int, int], status_fd: int, *, has_link: bool) -> None:
    """Confine this process; StepRefused names the step that the kernel did not take.

    ``limits`` are CPU seconds, memory bytes and file bytes.
    """
    os.setsid()
    if rules.jailed:
        kernel.unshare(kernel.CLONE_NEWNS, "mount namespace of a run")
        uid = os.getuid() if rules.uid is None else rules.uid
        gid = uid if rules.uid is not None else os.getgid()
        jail.mount_tmp(limits[2], uid, gid, execute=rules.profile.execute)
    else:
        os.chdir(rules.directory)
    if rules.uid is not None:
        os.setresgid(rules.uid, rules.uid, rules.uid)
        os.setresuid(rules.uid, rules.uid, rules.uid)
    kernel.drop_capabilities()
    set_limits(limits, own_uid=rules.uid is not None, execute=rules.profile.execute)
    rules.program_filter.set_pid(os.getpid())
    if rules.ruleset is not None:
        rules.ruleset.restrict_self()
    # After Landlock: its ruleset is one of the descriptors that go.
    place_descriptors(status_fd, has_link=has_link)
    rules.program_filter.install("seccomp for a program")
