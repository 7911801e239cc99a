"""Start of the fork-server: into its namespaces, its root and its filters, tier by tier."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass

from . import jail, kernel
from .kernel import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS
from .landlock import Ruleset, version
from .lockdown import Confinement, set_common_limits
from .profile import Profile
from .seccomp import Filter, ProgramFilter, allow_list

ROOT, USERNS, RESTRICTED = "root", "userns", "restricted"
_NAMESPACES = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
# Far above the users that a machine has, or, where a container maps few ids, above the usual ones.
_UID_RANGES = ((0x70000000, 1 << 22), (61000, 4000), (40000, 1))


@dataclass(frozen=True)
class Request:
    """What the driving process wants (the fork-server's command line)."""

    tier: str
    directory: str
    """The private directory to use where there are no namespaces; else empty."""
    profile: Profile

    @property
    def jailed(self) -> bool:
        """Whether there are namespaces, with a root directory of their own."""
        return self.tier != RESTRICTED


def slot_uid() -> int:
    """A user id that nobody else has: this process's id above a base, in a range that exists here."""
    with open("/proc/self/uid_map") as file:
        spans = [tuple(map(int, line.split())) for line in file]
    for base, size in _UID_RANGES:
        uid = base + os.getpid() % size
        if any(first <= uid < first + count for first, _, count in spans):
            return uid
    raise kernel.StepRefused("another uid: this container maps none")


def _become_ordinary_user(uid: int) -> None:
    """Shed root, where we have it, so that a user namespace means the same for everybody."""
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise kernel.refused_by("shedding root", error) from None


def _enter_user_namespace() -> None:
    uid, gid = os.getuid(), os.getgid()
    # The maps of a process that changed its user belong to root until it is dumpable again.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1, "dumpable")
    kernel.unshare(CLONE_NEWUSER, "user namespace")
    try:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as error:
        raise kernel.refused_by("user namespace map", error) from None


def _continue_as_first_process() -> None:
    """Fork into the new pid namespace; this process only waits, and ends with the fork-server."""
    pid = os.fork()
    if pid:
        os.closerange(0, 2)
        os.closerange(3, 1024)
        os.waitpid(pid, 0)
        os._exit(0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "death signal")


def _enter_jail(request: Request) -> int | None:
    """Into namespaces and the minimal root; the uid for children where it differs from ours."""
    os.chdir(jail.python_home())
    uid = None
    if request.tier == ROOT:
        if os.geteuid() != 0:
            raise kernel.StepRefused("tier root: not run as root")
        uid = slot_uid()
        os.setgroups([])
    else:
        if os.geteuid() == 0:
            _become_ordinary_user(slot_uid())
        _enter_user_namespace()
    kernel.unshare(_NAMESPACES, "namespaces")
    _continue_as_first_process()
    try:
        socket.sethostname("sandbox")
        jail.enter(request.profile)
    except OSError as error:
        raise kernel.refused_by("new root", error) from None
    return uid


def _file_rules(request: Request) -> Ruleset | None:
    """Landlock for the children. With a root of their own it is a second wall, otherwise the only one."""
    if request.jailed and not version():
        return None
    rules = Ruleset()
    paths = jail.readable_paths(request.profile)
    rules.allow_reading(paths, execute=request.profile.execute)
    rules.allow_devices(jail.DEVICES)
    rules.allow_everything_in(jail.WRITABLE_PARENT if request.jailed else request.directory)
    return rules


def enter(request: Request) -> Confinement:
    """Move this process into the place from which it will fork, all but the filter.

    Raises StepRefused with the step that this machine does not allow.
    """
    profile, jailed = request.profile, request.jailed
    uid = _enter_jail(request) if jailed else None
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no new privileges")
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, "dumpable")  # forks inherit it
    kernel.drop_bounding_set()
    set_common_limits()
    directory = jail.TMP if jailed else request.directory
    os.environ.clear()
    os.environ.update(PATH="/usr/bin:/bin", LANG="C.UTF-8", HOME=directory, TMPDIR=directory)
    os.environ.update(profile.environment)
    program_filter = ProgramFilter(jailed=jailed, processes=profile.processes)
    return Confinement(profile, jailed, uid, directory, _file_rules(request), program_filter)


def filter_self(request: Request) -> None:
    """Give up every system call that neither we nor a child will need."""
    Filter(allow_list(jailed=request.jailed, execute=request.profile.execute)).install("seccomp")
