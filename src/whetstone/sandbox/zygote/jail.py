"""The root directory that programs see: system libraries and Python, read-only, and an empty /tmp.

There is no /sys, no home, and unless a profile asks for them no /proc and nothing of /etc; /dev holds null,
zero and urandom, and shm as another name of /tmp: named semaphores and shared memory are files there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace

from . import kernel, tools
from .kernel import MS_BIND, MS_NODEV, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT
from .packages import package_folders
from .profile import Profile

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
SHARED_MEMORY = "/dev/shm"
_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo")
# What executed programs find as well: the system's programs, its C headers, and the links between them.
_PROGRAMS = (
    *("/bin", "/usr/bin", "/usr/libexec", "/usr/include", "/usr/local/lib", "/usr/local/lib64"),
    *("/usr/local/libexec", "/usr/local/include", "/etc/alternatives", "/etc/ld.so.cache"),
)
STREAM_NAMES = {
    "/dev/fd": "/proc/self/fd",
    **{f"/dev/{name}": f"/proc/self/fd/{fd}" for fd, name in enumerate(("stdin", "stdout", "stderr"))},
}
# A tmpfs put on this directory is reached by the Landlock rule on its parent; a rule on the
# directory itself would be left behind below the mount.
WRITABLE_PARENT = "/w"
TMP = "/w/tmp"
KIT = "/kit"
# Packages that are installed beneath one of these are shown beneath ``_ELSEWHERE``: the jail has its own.
_OUR_OWN = ("/tmp", "/w", "/dev", "/proc", KIT)
_ELSEWHERE = "/host"
# Where the new root is put together: a directory that hides nothing which is still to be bound.
_WORK_PLACES = ("/mnt", "/media", "/srv", "/opt", "/home", "/var", "/tmp", "/proc")
_KEPT_FLAGS = (
    (os.ST_NOSUID, kernel.MS_NOSUID),
    (os.ST_NODEV, kernel.MS_NODEV),
    (os.ST_NOEXEC, kernel.MS_NOEXEC),
    (os.ST_NOATIME, kernel.MS_NOATIME),
    (os.ST_NODIRATIME, kernel.MS_NODIRATIME),
    (os.ST_RELATIME, kernel.MS_RELATIME),
)


def python_home() -> str:
    """The interpreter's own tree, wherever it is installed."""
    return os.path.realpath(sys.base_prefix)


def readable_paths(profile: Profile) -> list[str]:
    """What a program may read: the system's libraries, the interpreter's, and what its profile adds."""
    system = (*_LIBRARIES, *(_PROGRAMS if profile.execute else ()))
    paths = [path for path in system if os.path.lexists(path)]
    for path in (home := os.path.join(python_home(), "lib"), *profile.reads):
        beneath = any(path == other or path.startswith(other + "/") for other in paths)
        # What this tier's user cannot reach is not there.
        if not beneath and (path == home or os.access(path, os.R_OK)):
            paths.append(path)
    return paths


def _shown_at(path: str) -> str:
    """Where a path of this machine is found in the jail."""
    own = any(path == place or path.startswith(place + "/") for place in _OUR_OWN)
    return _ELSEWHERE + path if own else path


def as_shown(profile: Profile) -> Profile:
    """A profile of Python programs with its paths as they are in the jail.

    Of executed programs they stay: their tools find each other by the paths that they were installed at.
    """
    if profile.execute:
        return profile
    reads = [_shown_at(path) for path in profile.reads]
    return replace(profile, reads=reads, import_from=[_shown_at(path) for path in profile.import_from])


def _work_place(sources: list[str]) -> str:
    for place in _WORK_PLACES:
        if os.path.isdir(place) and not any(s == place or s.startswith(place + "/") for s in sources):
            return place
    raise kernel.StepRefused("new root: no directory is free to build it on")


def _bind(source: str, target: str) -> None:
    """Make ``source`` appear read-only at ``target``."""
    kernel.mount(source, target, None, MS_BIND | MS_REC)
    # A user namespace may not lift the flags that the original mount carries: repeat them.
    present = os.statvfs(target).f_flag
    kept = sum(flag for seen, flag in _KEPT_FLAGS if present & seen)
    kernel.mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)


def _place(path: str, target: str, home: str) -> None:
    if os.path.islink(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.readlink(path), target)
        return
    source = _reachable(path, home)
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _bind(source, target)


def _reachable(path: str, home: str) -> str:
    """``path`` as we can walk to it: the interpreter's tree may lie under a directory of mode 0700, and is
    reached through the working directory, which was set before.
    """
    return f"./lib{path.removeprefix(home)}" if f"{path}/".startswith(f"{home}/") else path


def _hide_packages(path: str, root: str, reads: Mapping[str, str], home: str) -> None:
    """Cover the package folders beneath ``path``, and show in them what ``reads`` has.

    Its keys are places in the jail, its values where these are on this machine.
    """
    for folder in package_folders(root + path):
        covered = folder.removeprefix(root)
        if covered in reads:
            continue
        flags = MS_NOSUID | MS_NODEV
        kernel.mount("tmpfs", folder, "tmpfs", flags, "size=64k,mode=0755")
        for place, source in reads.items():
            if place.startswith(f"{covered}/") and os.access(_reachable(source, home), os.R_OK):
                _place(source, root + place, home)
        kernel.mount("none", folder, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def enter(profile: Profile) -> int | None:
    """Build the root and move into it: in a fresh mount namespace, from within ``python_home``.

    Returns an open directory, the /proc of our pid namespace, which is nowhere in the new root; None where it
    may not be mounted.
    """
    home = os.path.join(python_home(), "lib")
    sources = readable_paths(profile)
    kernel.mount("none", "/", None, MS_REC | MS_PRIVATE)
    root = _work_place([*sources, profile.shown_as_kit, "/dev"])
    kernel.mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755")
    os.mkdir(root + WRITABLE_PARENT, 0o755)
    os.mkdir(root + TMP, 0o755)
    os.symlink(TMP[1:], root + "/tmp")
    os.mkdir(root + "/dev", 0o755)
    reads = dict(zip(as_shown(profile).reads, profile.reads, strict=True))
    for path in sources:
        place = path if profile.execute else _shown_at(path)
        _place(path, root + place, home)
        if not os.path.islink(path):
            _hide_packages(place, root, reads, home)
    if profile.shown_as_kit and os.access(profile.shown_as_kit, os.R_OK):
        os.mkdir(root + KIT, 0o755)
        _bind(profile.shown_as_kit, root + KIT)
    for device in DEVICES:
        os.close(os.open(root + device, os.O_CREAT | os.O_WRONLY, 0o666))
        kernel.mount(device, root + device, None, MS_BIND)
    if not profile.execute:
        _place_tools(root, home)
    _name_streams(root, whole=profile.proc)
    os.symlink("../" + TMP[1:], root + SHARED_MEMORY)
    processes = _own_processes(root + TMP)
    os.chdir(root)
    kernel.pivot_root(".", ".")
    kernel.unmount(".")  # the old root, which now lies over the new one
    os.chdir("/")
    kernel.mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    return processes


def _place_tools(root: str, home: str) -> None:
    """Show what programs may execute, the interpreter at its own place unless that is the jail's."""
    for path in tools.system_tools():
        _place(path, root + path, home)
    real = tools.interpreter()
    if os.path.lexists(root + real) or _shown_at(real) != real:
        return
    folder = os.path.dirname(python_home() + "/")
    reached = "./" + real.removeprefix(folder + "/") if real.startswith(folder + "/") else real
    os.makedirs(os.path.dirname(root + real), exist_ok=True)
    os.close(os.open(root + real, os.O_CREAT | os.O_WRONLY, 0o755))
    _bind(reached, root + real)
    for path, target in tools.other_names().items():
        if not os.path.lexists(root + path) and os.path.isdir(os.path.dirname(root + path)):
            os.symlink(target, root + path)


def _own_processes(mount_point: str) -> int | None:
    """Open the /proc of this pid namespace; it stays reachable through the descriptor alone."""
    try:
        kernel.mount("proc", mount_point, "proc", MS_NOSUID | MS_NODEV | kernel.MS_NOEXEC)
    except kernel.StepRefused:
        return None  # a container that hides parts of its own /proc lets nobody mount a whole one
    fd = os.open(mount_point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    kernel.unmount(mount_point)
    return fd


def _name_streams(root: str, *, whole: bool) -> None:
    """Give the standard streams their names in /dev, which many programs open; those lead through /proc.

    Unless the ``whole`` of it is asked for, that holds nothing but a process's own directory.
    """
    os.mkdir(root + "/proc", 0o555)
    for name, target in STREAM_NAMES.items():
        os.symlink(target, root + name)
    with contextlib.suppress(kernel.StepRefused):  # containers that hide parts of theirs allow no other
        flags = MS_NOSUID | MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("proc", root + "/proc", "proc", flags, "" if whole else "subset=pid,hidepid=invisible")


def mount_tmp(size_bytes: int, uid: int, gid: int, *, execute: bool) -> None:
    """Mount a fresh, size-limited /tmp for one user."""
    options = f"size={size_bytes},nr_inodes=4096,mode=0700,uid={uid},gid={gid}"
    kernel.mount("tmpfs", TMP, "tmpfs", MS_NOSUID | MS_NODEV | (0 if execute else kernel.MS_NOEXEC), options)


def renew_tmp(size_bytes: int, uid: int, gid: int, *, execute: bool) -> None:
    """Put a fresh /tmp in the place of the used one."""
    kernel.unmount(TMP)
    mount_tmp(size_bytes, uid, gid, execute=execute)
