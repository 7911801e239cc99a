"""Start of the fork-server: into its namespaces and its root, split in two, and confined, tier by tier.

The first process keeps the little that needs privilege (``keeper``). The second, the *stem*, binds itself to
everything that no run may have either (another user, no capabilities, Landlock, rlimits, a filter), so that
runs inherit it and pay for nothing. It is the first process of its pid namespace where there is one, so
no signal from within reaches it.
"""

from __future__ import annotations

import _socket
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from . import jail, keeper, kernel, pinned, scratch_dir, tools, wire
from .kernel import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS
from .lockdown import Place
from .own_memory import OwnMemory
from .profile import Profile
from .seccomp import KEEPER_CALLS, Filter, allow_list

ROOT, USERNS, RESTRICTED = "root", "userns", "restricted"
_FOR_INTERPRETERS = ("PYTHONHASHSEED", "LD_LIBRARY_PATH")
_LAST_PID = "sys/kernel/ns_last_pid"
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
    group_entrances: Sequence[str] = ()
    """Files of a control group into which a process writes to join it."""
    group_counts: Sequence[str] = ()
    """What that group counts."""

    @property
    def jailed(self) -> bool:
        """In namespaces with a root of their own; otherwise in a private directory of the host."""
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


def _uid_of_its_own(request: Request) -> int | None:
    """Without namespaces, for runs of many processes: root's number cannot be limited, another user's can."""
    if not request.profile.processes or os.geteuid() != 0:
        return None
    try:
        uid = slot_uid()
        os.setgroups([])
        os.chown(request.directory, uid, uid)
    except (OSError, kernel.StepRefused):
        return None  # nobody else to become: no process is started unless a limit is seen to hold
    return uid


def _enter_namespaces(tier: str) -> int | None:
    """Into fresh namespaces (the pid namespace begins with the next child); the user for runs."""
    os.chdir(jail.python_home())
    uid = None
    if tier == ROOT:
        if os.geteuid() != 0:
            raise kernel.StepRefused("tier root: not run as root")
        uid = slot_uid()
        os.setgroups([])
    else:
        if os.geteuid() == 0:
            _become_ordinary_user(slot_uid())
        _enter_user_namespace()
    kernel.unshare(_NAMESPACES, "namespaces")
    return uid


def enter(request: Request) -> tuple[Place, _socket.socket, OwnMemory]:
    """Move into the place from which runs are forked. Only the stem returns; the keeper never does.

    Also returns the stem's end of a socket to the keeper, which can renew the directory where ``jailed``,
    and what tells of our memory, which cannot be opened from where we are then.
    Raises StepRefused with the step that this machine does not allow.
    """
    counts = _join_group(request)
    uid = _enter_namespaces(request.tier) if request.jailed else _uid_of_its_own(request)
    owner = (uid, uid) if uid is not None else (os.getuid(), os.getgid())
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no new privileges")
    kernel.drop_bounding_set()
    requests, theirs = _socket.socketpair()
    pid = os.fork()
    if pid:
        _become_keeper(pid, requests, request, owner)
    requests.close()
    memory = OwnMemory()
    if not request.profile.execute:
        memory.descriptors.update(pinned.open_ring())
    _offer_to_the_memory_killer()
    table = _settle_in_jail(request.profile, owner) if request.jailed else None
    if table is not None:
        with contextlib.suppress(OSError):  # where it is not ours to choose, process ids count up
            chooses = os.open(_LAST_PID, os.O_WRONLY | os.O_CLOEXEC, dir_fd=table)
            memory.descriptors[wire.LAST_PID_FD] = chooses
    directory = jail.TMP if request.jailed else request.directory
    for_interpreters = {name: os.environ[name] for name in _FOR_INTERPRETERS if name in os.environ}
    os.environ.clear()
    path = "/usr/bin:/bin" if request.profile.execute else tools.search_path()
    os.environ.update(PATH=path, LANG="C.UTF-8", HOME=directory, TMPDIR=directory)
    os.environ.update(request.profile.environment)
    for name, value in for_interpreters.items():
        os.putenv(name, value)  # for those that a program starts: its own has read them
    profile = jail.as_shown(request.profile) if request.jailed else request.profile
    return Place(profile, request.jailed, directory, uid, counts, table), theirs, memory


def _join_group(request: Request) -> frozenset[str]:
    """Join the control group, before there are more of us; what it counts, nothing if it stays closed."""
    try:
        for entrance in request.group_entrances:
            with open(entrance, "w") as file:
                file.write("0")
    except OSError:
        return frozenset()
    return frozenset(request.group_counts)


def _offer_to_the_memory_killer() -> None:
    """Should the machine run out of memory, a program is to end, not the keeper or whoever judges."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _settle_in_jail(profile: Profile, owner: tuple[int, int]) -> int | None:
    """Into the root with a fresh /tmp; our pid namespace's /proc, if there is one to be had."""
    try:
        _socket.sethostname("sandbox")
        table = jail.enter(profile)
    except OSError as error:
        raise kernel.refused_by("new root", error) from None
    jail.mount_tmp(profile.tmp_bytes, *owner, execute=profile.execute)
    return table


def _become_keeper(stem: int, requests: _socket.socket, request: Request, owner: tuple[int, int]) -> NoReturn:
    """Give up what the keeper does not need, and keep until the stem ends."""
    os.chdir("/")
    os.dup2(requests.fileno(), 0)
    requests.detach()
    # The driving process is to see the stem's end as the end of its socket. Standard error stays.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, "dumpable")
    if not request.jailed and owner[0] != os.getuid():
        _become_ordinary_user(owner[0])  # who owns the directory that is to be removed in the end
    if request.jailed:
        # To mount; and for the kernel to end the stem, another user's process, when this one ends.
        kernel.keep_capabilities(kernel.CAP_SYS_ADMIN, kernel.CAP_KILL)
        Filter(allow_list(KEEPER_CALLS)).install("seccomp for the keeper")
    else:
        kernel.keep_capabilities()
    renew, clean_up = _nothing, _nothing
    if request.jailed:
        profile = request.profile
        renew = partial(jail.renew_tmp, profile.tmp_bytes, *owner, execute=profile.execute)
    else:
        clean_up = partial(scratch_dir.remove_directory, request.directory)
    keeper.keep(stem, _socket.socket(fileno=0), renew, clean_up)


def _nothing() -> None:
    """What a keeper has to do for one of its two duties where the tier has no use for it."""
