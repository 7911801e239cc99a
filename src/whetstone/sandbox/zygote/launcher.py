"""Start of the fork-server: enters its namespaces and root, splits in two processes and confines them.

The first process, the ``supervisor``, keeps the few privileged operations. The second, the *template
process*, confines itself as its runs must be confined: another user, no capabilities, Landlock, rlimits,
seccomp. Runs inherit all this, so it costs them no time. The template process is the first of its pid
namespace, if there is one. The kernel then drops the signals that runs send to it.
"""

from __future__ import annotations

import _socket
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from . import jail, kernel, own_memory, tmp_dir, wire, workspaces
from .kernel import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS
from .lockdown import RunLocation
from .own_memory import OwnMemory
from .profile import Profile
from .seccomp import SUPERVISOR_CALLS, Filter, template_filter_code

ROOT, USERNS, RESTRICTED = "root", "userns", "restricted"
_FOR_INTERPRETERS = ("PYTHONHASHSEED", "LD_LIBRARY_PATH")
_LAST_PID = "sys/kernel/ns_last_pid"
_NAMESPACES = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
# Far above the user ids of a machine; if a container maps few ids, above the usual ones.
_UID_RANGES = ((0x70000000, 1 << 22), (61000, 4000), (40000, 1))


@dataclass(frozen=True)
class Request:
    """The fork-server's configuration, from its command line."""

    tier: str
    directory: str
    """The private directory for a tier without namespaces; else empty."""
    profile: Profile
    group_entrances: Sequence[str] = ()
    """Files of a control group. A process joins the group by writing to them."""
    group_counts: Sequence[str] = ()
    """The resources that this group accounts for."""

    @property
    def jailed(self) -> bool:
        """Whether runs have namespaces and a root of their own, not a private directory of the host."""
        return self.tier != RESTRICTED


def slot_uid() -> int:
    """Return an unused user id: a base plus this process's id, in a range that is mapped here."""
    with open("/proc/self/uid_map") as file:
        spans = [tuple(map(int, line.split())) for line in file]
    for base, size in _UID_RANGES:
        uid = base + os.getpid() % size
        if any(first <= uid < first + count for first, _, count in spans):
            return uid
    raise kernel.StepRefused("another uid: this container maps none")


def _become_ordinary_user(uid: int) -> None:
    """Give up root, so that a user namespace behaves the same for root and for other users."""
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise kernel.refused_by("giving up root", error) from None


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


def _separate_uid(request: Request) -> int | None:
    """Return a new user id for runs of many processes, without namespaces, or None if none is available.

    RLIMIT_NPROC limits the processes of other users, but not those of root.
    """
    if not request.profile.processes or os.geteuid() != 0:
        return None
    try:
        uid = slot_uid()
        os.setgroups([])
        os.chown(request.directory, uid, uid)
    except (OSError, kernel.StepRefused):
        return None  # the run starts no process unless a limit was seen to hold (``run_execute``)
    return uid


def _enter_namespaces(tier: str) -> int | None:
    """Enter new namespaces and return the user id for runs. The next child is the pid namespace's first."""
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


def enter(request: Request) -> tuple[RunLocation, _socket.socket, OwnMemory]:
    """Enter the place from which runs are forked. Returns in the template process only.

    It also returns the template process's end of a socket to the supervisor, which can renew /tmp if
    ``jailed``. The last value has the open files about our memory, which cannot be opened later. Raises
    StepRefused with the step that this machine does not allow.
    """
    counts = _join_group(request)
    claimed = _claim_workspaces(request) if os.geteuid() == 0 else None  # while it may change owners
    uid = _enter_namespaces(request.tier) if request.jailed else _separate_uid(request)
    owner = (uid, uid) if uid is not None else (os.getuid(), os.getgid())
    claimed = _claim_workspaces(request) if claimed is None else claimed
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no new privileges")
    kernel.drop_bounding_set()
    requests, theirs = _socket.socketpair()
    pid = os.fork()
    if pid:
        _become_supervisor(pid, requests, request, owner)
    requests.close()
    memory = OwnMemory()
    if not request.profile.execute:
        memory.descriptors.update(own_memory.open_ring())
    # When memory runs out, the kernel must kill this process and its runs first, and not the judge.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    table: int | None = None
    if request.jailed:
        try:
            _socket.sethostname("sandbox")
            table = jail.enter(request.profile, claimed)
        except OSError as error:
            raise kernel.refused_by("new root", error) from None
        jail.mount_tmp(request.profile.tmp_bytes, *owner, execute=request.profile.execute)
        if claimed is not None:
            tmp_dir.ask_supervisor(tmp_dir.HIDE, theirs.fileno())
    if table is not None:
        with contextlib.suppress(OSError):  # if we may not set the next process id, ids count up
            chooses = os.open(_LAST_PID, os.O_WRONLY | os.O_CLOEXEC, dir_fd=table)
            memory.descriptors[wire.LAST_PID_FD] = chooses
    directory = jail.TMP if request.jailed else request.directory
    for_interpreters = {name: os.environ[name] for name in _FOR_INTERPRETERS if name in os.environ}
    os.environ.clear()
    path = "/usr/bin:/bin" if request.profile.execute else jail.search_path()
    os.environ.update(PATH=path, LANG="C.UTF-8", HOME=directory, TMPDIR=directory)
    os.environ.update(request.profile.environment)
    for name, value in for_interpreters.items():
        os.putenv(name, value)  # for processes that a program starts; this interpreter has read them already
    profile = jail.profile_in_jail(request.profile) if request.jailed else request.profile
    return RunLocation(profile, request.jailed, directory, uid, counts, table), theirs, memory


def _claim_workspaces(request: Request) -> int | None:
    """Return a mount of the folder with workspaces, for a jail. Runs of root are another user."""
    if not (request.jailed and request.profile.workspaces):
        return None
    return workspaces.claim(request.profile.workspaces, slot_uid() if os.geteuid() == 0 else None)


def _join_group(request: Request) -> frozenset[str]:
    """Join the control group before the first fork. Returns what it accounts for, or nothing if refused."""
    try:
        for entrance in request.group_entrances:
            with open(entrance, "w") as file:
                file.write("0")
    except OSError:
        return frozenset()
    return frozenset(request.group_counts)


def _become_supervisor(
    template_pid: int, requests: _socket.socket, request: Request, owner: tuple[int, int]
) -> NoReturn:
    """Drop the privileges that the supervisor does not need, and serve until the template process ends."""
    os.chdir("/")
    os.dup2(requests.fileno(), 0)
    requests.detach()
    # The client must see the end of the template process as the end of its socket, so no copy may stay open.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0, "dumpable")
    if not request.jailed and owner[0] != os.getuid():
        _become_ordinary_user(owner[0])  # the owner of the directory, which is removed at the end
    if request.jailed:
        # SYS_ADMIN to mount; KILL so that the kernel may kill the template process, which has another user,
        # when this process ends.
        more = kernel.CAPS_OVER_FILES if request.profile.workspaces else ()
        kernel.keep_capabilities(kernel.CAP_SYS_ADMIN, kernel.CAP_KILL, *more)
        Filter(template_filter_code(SUPERVISOR_CALLS)).install("seccomp for the supervisor")
    else:
        kernel.keep_capabilities()
    renew, clean_up = _do_nothing, _do_nothing
    if request.jailed:
        profile = request.profile
        renew = partial(jail.renew_tmp, profile.tmp_bytes, *owner, execute=profile.execute)
    else:
        clean_up = partial(tmp_dir.remove_directory, request.directory)
    tmp_dir.serve_requests(template_pid, _socket.socket(fileno=0), renew, clean_up)


def _do_nothing() -> None:
    """Do nothing: each tier needs only one of ``renew`` and ``clean_up``."""
