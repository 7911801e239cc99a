"""The confinement steps. Most run once in the template process and are inherited, some run in each fork."""

from __future__ import annotations

import os
import resource
import signal
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from . import jail, kernel, wire
from .landlock import Ruleset, version
from .packages import without_packages
from .profile import Profile
from .seccomp import (
    EXECUTING_CALLS,
    TEMPLATE_CALLS,
    TIMER_CALLS,
    Filter,
    ProgramFilter,
    template_filter_code,
)

# A run with this many processes and threads is ended.
MAX_TASKS = 256
# The kernel's own limit. It is higher, so that the limit above is seen before the kernel refuses a fork.
TASKS_CEILING = MAX_TASKS + 32
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

_NO_FD = 1 << 30
_FILTER_MODE = 2
_SIGKILL = int(signal.SIGKILL)
_prctl, _setrlimit, _closerange = kernel.prctl_now, resource.setrlimit, os.closerange
_drop_capabilities = kernel.drop_capabilities
_getpid, _getppid, _setpgid = os.getpid, os.getppid, os.setpgid
# The resources that a control group must account for to measure a process tree on its own.
COUNTED = {"cpu", "memory", "pids"}

ResourceLimits = tuple[tuple[int, tuple[int, int]], ...]
"""Kinds of rlimit with their soft and hard values."""
_last_limits: list[Any] = [(), ()]


@dataclass(frozen=True)
class RunLocation:
    """Where the runs of a fork-server take place, and with which user."""

    profile: Profile
    jailed: bool
    """Whether runs have namespaces and a root of their own, not a private directory of the host."""
    directory: str
    """The working directory, the only writable one."""
    uid: int | None
    """The user id to switch to, or None to keep the current one."""
    group_counts: frozenset[str]
    """The resources that the joined control group accounts for: cpu, memory, pids, or none."""
    process_table: int | None
    """The open /proc of the pid namespace, until it is sent to the client."""

    @property
    def own_count(self) -> bool:
        """Whether the kernel counts only the processes of this fork-server under its user."""
        return self.uid is not None or (self.jailed and _counts_users_per_namespace())

    @property
    def whole_tree(self) -> bool:
        """Whether all processes of a run can be counted, limited and killed, so that it may have several."""
        counted = self.process_table is not None or self.group_counts >= COUNTED
        return self.jailed and counted and (self.own_count or "pids" in self.group_counts)

    @property
    def visible(self) -> bool:
        """Whether the client, an ordinary user, must be able to read how a run's processes share memory."""
        return self.uid is None and "memory" not in self.group_counts

    @property
    def executes(self) -> bool:
        """Whether a run may execute programs: if that is its purpose, or if all its processes are counted."""
        return self.profile.execute or self.whole_tree


def _limited(kind: int, soft: int, hard: int) -> tuple[int, tuple[int, int]]:
    ceiling = _CEILINGS[kind]
    if ceiling != _UNLIMITED:
        soft = ceiling if soft == _UNLIMITED else min(soft, ceiling)
        hard = ceiling if hard == _UNLIMITED else min(hard, ceiling)
    return kind, (soft, hard)


def run_limits(cpu_s: int, memory_bytes: int, execute: bool) -> ResourceLimits:
    """Return the rlimits of a run. They are a backstop: the client measures and enforces the actual limits.

    The address space may exceed the memory limit, because only resident memory counts. Reserved space and
    thread stacks do not.
    """
    # Most runs have the limits of the previous one. ``functools.cache`` would count hits, and a program could
    # read from that how many runs there were.
    requested = (cpu_s, memory_bytes, execute)
    if _last_limits[0] != requested:
        slack = _ADDRESS_SPACE_SLACK_OF_RUNTIMES if execute else _ADDRESS_SPACE_SLACK
        address_space = 2 * memory_bytes + slack
        _last_limits[:] = (
            requested,
            (
                _limited(resource.RLIMIT_AS, address_space, address_space),
                _limited(resource.RLIMIT_STACK, memory_bytes, _UNLIMITED),
                _limited(resource.RLIMIT_CPU, cpu_s, cpu_s),
            ),
        )
    return _last_limits[1]


def _limit_template(tmp_bytes: int, *, own_count: bool) -> None:
    """Set the rlimits that are the same for every run. Runs inherit them."""
    constant = {
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_FSIZE: tmp_bytes,
        # With 0 the kernel would still start the machine's core-dump helper; with 1 it writes nothing.
        resource.RLIMIT_CORE: 1,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if own_count:
        # RLIMIT_NPROC counts all processes of a user. Set it only if no other sandbox has the same user.
        constant[resource.RLIMIT_NPROC] = TASKS_CEILING
    for kind, value in constant.items():
        resource.setrlimit(*_limited(kind, value, value))


def _counts_users_per_namespace() -> bool:
    """Return whether RLIMIT_NPROC counts the processes of this user namespace only, as it does since Linux
    5.14."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(takewhile(str.isdigit, minor)) or 0)) >= (5, 14)


def _restrict_files(place: RunLocation) -> None:
    """Restrict file access by Landlock. It is a second barrier on a tier with its own root, and otherwise the
    only one."""
    if place.jailed and not version():
        return
    rules = Ruleset()
    profile = place.profile
    # Landlock applies a rule for a link to its target folder, so links are resolved before the checks.
    executed = [*jail.executable_system_paths(), jail.interpreter()] if place.executes else []
    for path in dict.fromkeys(map(os.path.realpath, (*jail.readable_paths(profile), *executed))):
        readable, listed = without_packages(path)
        rules.allow_reading(readable, execute=place.executes)
        rules.allow_listing(listed)
    rules.allow_reading(profile.reads, execute=profile.execute)  # may include packages
    if place.jailed:
        rules.allow_listing(profile.import_from)  # in the jail, it contains nothing else
    if profile.shown_as_kit:
        rules.allow_reading([jail.KIT if place.jailed else profile.shown_as_kit])
    rules.allow_devices(jail.DEVICES)
    writable = jail.WRITABLE_PARENT if place.jailed else place.directory
    if profile.workspaces and not place.jailed:
        writable = os.path.dirname(place.directory)  # the workspace of a run is put beside it
    rules.allow_everything_in(writable, sockets=place.jailed)
    rules.restrict_self()


def confine_template(place: RunLocation) -> None:
    """Confine this process and every run that it forks. Raises StepRefused with the step that failed.

    It keeps only the rights that ``confine_run`` removes later. Requires no_new_privs.
    """
    os.setsid()
    # CHECKPOINT_RESTORE allows it to choose the next process id. Each run drops the capability.
    kernel.prctl(kernel.PR_SET_KEEPCAPS, 1, "keeping capabilities")
    if place.uid is not None:
        os.setresgid(place.uid, place.uid, place.uid)
        os.setresuid(place.uid, place.uid, place.uid)
    try:
        kernel.keep_capabilities(*((kernel.CAP_CHECKPOINT_RESTORE,) if place.jailed else ()))
    except kernel.StepRefused:
        kernel.keep_capabilities()
    # After the change of user, which resets both settings. A run has the same user, but it cannot read the
    # memory of a process that is not dumpable.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, "dumpable")
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "death signal")
    if place.profile.workspaces and not place.jailed:
        # Its runs' processes must have ended before their workspace is read, also those without a parent.
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, "adopting orphans")
    _limit_template(place.profile.tmp_bytes, own_count=place.own_count)
    _restrict_files(place)


def filter_template(place: RunLocation) -> None:
    """Give up memory locking and all system calls that neither this process nor a run needs."""
    resource.setrlimit(*_limited(resource.RLIMIT_MEMLOCK, 0, 0))
    calls = (*TEMPLATE_CALLS, *EXECUTING_CALLS) if place.executes else TEMPLATE_CALLS
    calls += TIMER_CALLS if place.profile.execute else ()
    Filter(template_filter_code(calls, local_sockets=place.jailed)).install("seccomp")


def confine_run(
    limits: ResourceLimits,
    program_filter: ProgramFilter,
    template_pid: int,
    first_foreign_fd: int,
    *,
    visible: bool,
) -> None:
    """Confine this process, a fork of the template process with the id ``template_pid``, for a program.

    It leaves open the standard streams, the status pipe, the result and the link, which are below
    ``first_foreign_fd``. ``visible``: whether our user may read which memory the processes share. Raises
    OSError or StepRefused for a step that the kernel refuses. The function uses few objects, because each one
    costs this run a copied page.
    """
    if template_pid != 1:  # when process 1 of a pid namespace ends, the kernel kills all others
        if _prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL, 0):
            raise kernel.StepRefused("death signal")
        if _getppid() != template_pid:
            # It ended before PDEATHSIG was set, so the signal will never come.
            raise kernel.StepRefused("the fork-server ended meanwhile")
        # The filter forbids leaving the group, so the group contains all processes of the run.
        _setpgid(0, 0)
    if visible:
        _prctl(kernel.PR_SET_DUMPABLE, 1, 0)
    for limit in limits:
        _setrlimit(*limit)
    _closerange(wire.CONTROL_FD, wire.STATUS_WRITE_FD)
    _closerange(first_foreign_fd, _NO_FD)
    if _drop_capabilities():
        raise kernel.StepRefused("capabilities")
    program_filter.set_pid(_getpid())
    if _prctl(kernel.PR_SET_SECCOMP, _FILTER_MODE, program_filter.program):
        raise kernel.StepRefused("seccomp for a program")
