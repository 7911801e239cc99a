"""The steps that confine: most of them once, for the stem and all that it forks, the rest for each run."""

from __future__ import annotations

import os
import resource
import signal
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from . import jail, kernel, tools, wire
from .landlock import Ruleset, version
from .packages import without_packages
from .profile import Profile
from .seccomp import EXECUTING_CALLS, STEM_CALLS, Filter, ProgramFilter, allow_list

MAX_TASKS = 256
"""Processes and threads of one run: with as many, it is ended."""
TASKS_CEILING = MAX_TASKS + 32
"""Where the kernel refuses more. Refused attempts count for a moment: so that the limit itself is seen."""
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
COUNTED = {"cpu", "memory", "pids"}
"""What a control group must count to account for a tree of processes by itself."""

ResourceLimits = tuple[tuple[int, tuple[int, int]], ...]
"""Kinds of rlimit with their soft and hard values."""
_last_limits: list[Any] = [(), ()]


@dataclass(frozen=True)
class Place:
    """Where the runs of a fork-server take place, and as whom."""

    profile: Profile
    jailed: bool
    """In namespaces with a root of their own; otherwise in a private directory of the host."""
    directory: str
    """The working directory and only writable place."""
    uid: int | None
    """The user to become, or None to stay who we are."""
    group_counts: frozenset[str]
    """What the control group that we have joined counts: cpu, memory, pids, or nothing."""
    process_table: int | None
    """The open /proc of our pid namespace, on its way to the driving process."""

    @property
    def own_count(self) -> bool:
        """Whether the kernel's count of our user's processes has none but ours in it."""
        return self.uid is not None or (self.jailed and _counts_users_per_namespace())

    @property
    def whole_tree(self) -> bool:
        """Whether a run's processes can all be counted, limited and ended: then it may have several."""
        counted = self.process_table is not None or self.group_counts >= COUNTED
        return self.jailed and counted and (self.own_count or "pids" in self.group_counts)

    @property
    def visible(self) -> bool:
        """Whether the driving process, an ordinary user, is to see which memory a run's processes share."""
        return self.uid is None and "memory" not in self.group_counts

    @property
    def executes(self) -> bool:
        """Whether a run may execute programs: where that is its purpose, or all its processes are counted."""
        return self.profile.execute or self.whole_tree


def _limited(kind: int, soft: int, hard: int) -> tuple[int, tuple[int, int]]:
    ceiling = _CEILINGS[kind]
    if ceiling != _UNLIMITED:
        soft = ceiling if soft == _UNLIMITED else min(soft, ceiling)
        hard = ceiling if hard == _UNLIMITED else min(hard, ceiling)
    return kind, (soft, hard)


def run_limits(cpu_s: int, memory_bytes: int, execute: bool) -> ResourceLimits:
    """Backstops behind the limits that are measured from outside. Most runs have those of the one before.

    A cache of the library's would count its hits, where a run finds them. Address space gets room beyond the
    memory limit, because only resident memory is to count: reserved space and thread stacks are free.
    """
    asked = (cpu_s, memory_bytes, execute)
    if _last_limits[0] != asked:
        _last_limits[:] = asked, _run_limits(cpu_s, memory_bytes, execute=execute)
    return _last_limits[1]


def _run_limits(cpu_s: int, memory_bytes: int, *, execute: bool) -> ResourceLimits:
    slack = _ADDRESS_SPACE_SLACK_OF_RUNTIMES if execute else _ADDRESS_SPACE_SLACK
    address_space = 2 * memory_bytes + slack
    return (
        _limited(resource.RLIMIT_AS, address_space, address_space),
        _limited(resource.RLIMIT_STACK, memory_bytes, _UNLIMITED),
        _limited(resource.RLIMIT_CPU, cpu_s, cpu_s),
    )


def _limit_stem(tmp_bytes: int, *, own_count: bool) -> None:
    """The backstops that are the same for every run: set once, inherited by each."""
    constant = {
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_FSIZE: tmp_bytes,
        # With 0 a machine's helper would still be started for a core; one byte is never written.
        resource.RLIMIT_CORE: 1,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if own_count:
        # The kernel counts a user's processes: sharing the user would share the count.
        constant[resource.RLIMIT_NPROC] = TASKS_CEILING
    for kind, value in constant.items():
        resource.setrlimit(*_limited(kind, value, value))


def _counts_users_per_namespace() -> bool:
    """From Linux 5.14 on, RLIMIT_NPROC compares with a user's processes in this user namespace alone."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(takewhile(str.isdigit, minor)) or 0)) >= (5, 14)


def _bind_to_files(place: Place) -> None:
    """Landlock. With a root of our own it is a second wall, otherwise the only one."""
    if place.jailed and not version():
        return
    rules = Ruleset()
    profile = place.profile
    # Links resolved: a rule for one would let all be read that it leads to.
    executed = [*tools.system_tools(), tools.interpreter()] if place.executes else []
    for path in dict.fromkeys(map(os.path.realpath, (*jail.readable_paths(profile), *executed))):
        readable, listed = without_packages(path)
        rules.allow_reading(readable, execute=place.executes)
        rules.allow_listing(listed)
    rules.allow_reading(profile.reads, execute=profile.execute)  # some packages may be among them
    if place.jailed:
        rules.allow_listing(profile.import_from)  # nothing else is there
    if profile.shown_as_kit:
        rules.allow_reading([jail.KIT if place.jailed else profile.shown_as_kit])
    rules.allow_devices(jail.DEVICES)
    writable = jail.WRITABLE_PARENT if place.jailed else place.directory
    rules.allow_everything_in(writable, sockets=place.jailed)
    rules.restrict_self()


def confine_stem(place: Place) -> None:
    """Bind this process, and every run that it forks, for good; StepRefused names a step not taken.

    What is left to it beyond a program's rights are the calls that ``confine_run`` takes away. Needs
    no_new_privs.
    """
    os.setsid()
    # Of the capabilities one, that to choose the next process id; each run drops it.
    kernel.prctl(kernel.PR_SET_KEEPCAPS, 1, "keeping capabilities")
    if place.uid is not None:
        os.setresgid(place.uid, place.uid, place.uid)
        os.setresuid(place.uid, place.uid, place.uid)
    try:
        kernel.keep_capabilities(*((kernel.CAP_CHECKPOINT_RESTORE,) if place.jailed else ()))
    except kernel.StepRefused:
        kernel.keep_capabilities()
    # After the change of user, which resets both. Not dumpable: no run, though it is the same user,
    # can look into us.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, "dumpable")
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "death signal")
    _limit_stem(place.profile.tmp_bytes, own_count=place.own_count)
    _bind_to_files(place)


def filter_stem(place: Place) -> None:
    """Give up what neither we nor a run will need: system calls, and locking memory."""
    resource.setrlimit(*_limited(resource.RLIMIT_MEMLOCK, 0, 0))
    calls = (*STEM_CALLS, *EXECUTING_CALLS) if place.executes else STEM_CALLS
    Filter(allow_list(calls, local_sockets=place.jailed)).install("seccomp")


def confine_run(
    limits: ResourceLimits, program_filter: ProgramFilter, stem: int, first_foreign_fd: int, *, visible: bool
) -> None:
    """Confine this process, a fork of the stem (whose id is ``stem``), to what a program may do.

    Leaves open the standard streams, the status pipe, and result and link, which are below
    ``first_foreign_fd``. ``visible``: to our user, who measures what its processes share. Raises OSError or
    StepRefused for a step that the kernel did not take. Every object used here is one that is copied for
    this run, so there are few.
    """
    if stem != 1:  # the first process of a pid namespace takes all others along
        if _prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL, 0):
            raise kernel.StepRefused("death signal")
        if _getppid() != stem:
            raise kernel.StepRefused("the fork-server ended meanwhile")
        _setpgid(0, 0)  # which no program can leave: so this ends, and counts, whatever it starts
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
