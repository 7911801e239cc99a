"""The root directory that programs see: system libraries and Python, read-only, and an empty /tmp.

It has no /sys and no home. It has /proc and files of /etc only if a profile requests them. /dev has null,
zero and urandom, and shm as another name of /tmp, because named semaphores and shared memory are files there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace

from . import kernel, workspaces
from .kernel import MS_BIND, MS_NODEV, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT
from .packages import package_folders
from .profile import Profile

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
SHARED_MEMORY = "/dev/shm"
_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo")
# Additional paths for executed programs: the system's programs, its C headers, and the links between them.
_PROGRAMS = (
    *("/bin", "/usr/bin", "/usr/libexec", "/usr/include", "/usr/local/lib", "/usr/local/lib64"),
    *("/usr/local/libexec", "/usr/local/include", "/etc/alternatives", "/etc/ld.so.cache"),
)
# The executables that a Python program may start, on tiers that account for all its processes: the
# interpreter and the system's programs. They run under the same filters as the program, so they give it no
# new abilities.
_EXECUTABLE = ("/bin", "/usr/bin", "/etc/alternatives", "/etc/ld.so.cache")
_INTERPRETER_NAMES = ("python", "python3")
STREAM_NAMES = {
    "/dev/fd": "/proc/self/fd",
    **{f"/dev/{name}": f"/proc/self/fd/{fd}" for fd, name in enumerate(("stdin", "stdout", "stderr"))},
}
# The Landlock rule on the parent includes a tmpfs that is mounted later. A rule on the directory itself would
# stay with the directory below the mount.
WRITABLE_PARENT = "/w"
TMP = "/w/tmp"
KIT = "/kit"
# The jail has its own directories of these names. Packages that are installed below one of them are shown
# below `_ELSEWHERE`.
_OWN_PLACES = ("/tmp", "/w", "/dev", "/proc", KIT)
_ELSEWHERE = "/host"
# The new root is built on one of these directories: one that hides no path which must still be bound.
_BUILD_PLACES = ("/mnt", "/media", "/srv", "/opt", "/home", "/var", "/tmp", "/proc")
_KEPT_FLAGS = (
    (os.ST_NOSUID, kernel.MS_NOSUID),
    (os.ST_NODEV, kernel.MS_NODEV),
    (os.ST_NOEXEC, kernel.MS_NOEXEC),
    (os.ST_NOATIME, kernel.MS_NOATIME),
    (os.ST_NODIRATIME, kernel.MS_NODIRATIME),
    (os.ST_RELATIME, kernel.MS_RELATIME),
)


def python_home() -> str:
    """Return the installation folder of the interpreter."""
    return os.path.realpath(sys.base_prefix)


def executable_system_paths() -> list[str]:
    """Return the system's program folders, and the files that its programs need to start."""
    return [path for path in _EXECUTABLE if os.path.lexists(path)]


def interpreter() -> str:
    """Return the path of the interpreter's executable, with links resolved."""
    return os.path.realpath(sys.executable)


def search_path() -> str:
    """Return PATH for programs. The interpreter's folder is first, so that ``python3`` is the interpreter of
    the program."""
    folders = (os.path.dirname(interpreter()), "/usr/bin", "/bin")
    return ":".join(dict.fromkeys(folders))


def other_names() -> dict[str, str]:
    """Return the other usual names of the interpreter, each with the target of its link."""
    real, invoked = interpreter(), os.path.abspath(sys.executable)
    usual = [os.path.join(os.path.dirname(real), name) for name in _INTERPRETER_NAMES]
    return {path: real for path in dict.fromkeys((invoked, *usual)) if path != real}


def readable_paths(profile: Profile) -> list[str]:
    """Return what a program may read: the libraries of the system and the interpreter, and the additions of
    its profile."""
    system = (*_LIBRARIES, *(_PROGRAMS if profile.execute else ()))
    paths = [path for path in system if os.path.lexists(path)]
    for path in (home := os.path.join(python_home(), "lib"), *profile.reads):
        beneath = any(path == other or path.startswith(other + "/") for other in paths)
        # Paths that the user of this tier cannot read are left out.
        if not beneath and (path == home or os.access(path, os.R_OK)):
            paths.append(path)
    return paths


def _path_in_jail(path: str) -> str:
    """Return the path in the jail of a path of this machine."""
    own = any(path == place or path.startswith(place + "/") for place in _OWN_PLACES)
    return _ELSEWHERE + path if own else path


def profile_in_jail(profile: Profile) -> Profile:
    """Return a profile of Python programs with its paths as they are in the jail.

    The paths of executed programs stay the same, because tools find each other by the paths of their
    installation.
    """
    if profile.execute:
        return profile
    reads = [_path_in_jail(path) for path in profile.reads]
    return replace(profile, reads=reads, import_from=[_path_in_jail(path) for path in profile.import_from])


def _find_build_place(sources: list[str]) -> str:
    for place in _BUILD_PLACES:
        if os.path.isdir(place) and not any(s == place or s.startswith(place + "/") for s in sources):
            return place
    raise kernel.StepRefused("new root: no directory is free to build it on")


def _bind(source: str, target: str) -> None:
    """Make ``source`` visible read-only at ``target``."""
    kernel.mount(source, target, None, MS_BIND | MS_REC)
    # A user namespace may not remove flags of the original mount, so they are repeated.
    present = os.statvfs(target).f_flag
    kept = sum(flag for seen, flag in _KEPT_FLAGS if present & seen)
    kernel.mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)


def _bind_or_link(path: str, target: str, home: str) -> None:
    if os.path.islink(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.readlink(path), target)
        return
    source = _reachable_path(path, home)
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _bind(source, target)


def _reachable_path(path: str, home: str) -> str:
    """Return a path by which this process can reach ``path``. The interpreter's folder may be inside a
    directory of mode 0700. It is reached through the working directory, which was set earlier."""
    return f"./lib{path.removeprefix(home)}" if f"{path}/".startswith(f"{home}/") else path


def _hide_packages(path: str, root: str, reads: Mapping[str, str], home: str) -> None:
    """Cover the package folders below ``path``, and show the entries of ``reads`` in them.

    Its keys are paths in the jail, and its values the same on this machine.
    """
    for folder in package_folders(root + path):
        covered = folder.removeprefix(root)
        if covered in reads:
            continue
        flags = MS_NOSUID | MS_NODEV
        kernel.mount("tmpfs", folder, "tmpfs", flags, "size=64k,mode=0755")
        for place, source in reads.items():
            if place.startswith(f"{covered}/") and os.access(_reachable_path(source, home), os.R_OK):
                _bind_or_link(source, root + place, home)
        kernel.mount("none", folder, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def enter(profile: Profile, all_workspaces: int | None = None) -> int | None:
    """Build the root and move into it. The process must be in a fresh mount namespace, and in
    ``python_home``. ``all_workspaces`` is a claimed mount: see ``workspaces``.

    Returns an open directory, the /proc of our pid namespace, which is nowhere in the new root. None if it
    may not be mounted.
    """
    home = os.path.join(python_home(), "lib")
    sources = readable_paths(profile)
    kernel.mount("none", "/", None, MS_REC | MS_PRIVATE)
    root = _find_build_place([*sources, profile.shown_as_kit, "/dev"])
    kernel.mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755")
    os.mkdir(root + WRITABLE_PARENT, 0o755)
    os.mkdir(root + TMP, 0o755)
    # A relative link, because the path must be valid before and after the change of the root.
    os.symlink(TMP[1:], root + "/tmp")
    os.mkdir(root + "/dev", 0o755)
    if all_workspaces is not None:
        workspaces.place(all_workspaces, root)
    reads = dict(zip(profile_in_jail(profile).reads, profile.reads, strict=True))
    for path in sources:
        place = path if profile.execute else _path_in_jail(path)
        _bind_or_link(path, root + place, home)
        if not os.path.islink(path):
            _hide_packages(place, root, reads, home)
    if profile.shown_as_kit and os.access(profile.shown_as_kit, os.R_OK):
        os.mkdir(root + KIT, 0o755)
        _bind(profile.shown_as_kit, root + KIT)
    for device in DEVICES:
        os.close(os.open(root + device, os.O_CREAT | os.O_WRONLY, 0o666))
        kernel.mount(device, root + device, None, MS_BIND)
    if not profile.execute:
        _add_executables(root, home)
    _add_stream_names(root, whole=profile.proc)
    os.symlink("../" + TMP[1:], root + SHARED_MEMORY)
    processes = _open_proc(root + TMP)
    os.chdir(root)
    # Both arguments are the same directory, so no place for the old root is needed: pivot_root(2).
    kernel.pivot_root(".", ".")
    kernel.unmount(".")  # the old root, which is now mounted over the new one
    os.chdir("/")
    kernel.mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    return processes


def _add_executables(root: str, home: str) -> None:
    """Show what programs may execute. The interpreter keeps its own path unless that is inside a place of the
    jail."""
    for path in executable_system_paths():
        _bind_or_link(path, root + path, home)
    real = interpreter()
    if os.path.lexists(root + real) or _path_in_jail(real) != real:
        return
    folder = os.path.dirname(python_home() + "/")
    reached = "./" + real.removeprefix(folder + "/") if real.startswith(folder + "/") else real
    os.makedirs(os.path.dirname(root + real), exist_ok=True)
    os.close(os.open(root + real, os.O_CREAT | os.O_WRONLY, 0o755))
    _bind(reached, root + real)
    for path, target in other_names().items():
        if not os.path.lexists(root + path) and os.path.isdir(os.path.dirname(root + path)):
            os.symlink(target, root + path)


def _open_proc(mount_point: str) -> int | None:
    """Open the /proc of this pid namespace. It stays reachable through the descriptor only."""
    try:
        kernel.mount("proc", mount_point, "proc", MS_NOSUID | MS_NODEV | kernel.MS_NOEXEC)
    except kernel.StepRefused:
        return None  # a container that hides parts of its /proc forbids mounting a complete one
    fd = os.open(mount_point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    kernel.unmount(mount_point)
    return fd


def _add_stream_names(root: str, *, whole: bool) -> None:
    """Give the standard streams their names in /dev, which many programs open. The names are links through
    /proc.

    Without ``whole``, this /proc has nothing but the directory of the reading process.
    """
    os.mkdir(root + "/proc", 0o555)
    for name, target in STREAM_NAMES.items():
        os.symlink(target, root + name)
    with contextlib.suppress(
        kernel.StepRefused
    ):  # containers that hide parts of their own /proc allow no other one
        flags = MS_NOSUID | MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("proc", root + "/proc", "proc", flags, "" if whole else "subset=pid,hidepid=invisible")


def mount_tmp(size_bytes: int, uid: int, gid: int, *, execute: bool) -> None:
    """Mount a fresh, size-limited /tmp for one user."""
    options = f"size={size_bytes},nr_inodes=4096,mode=0700,uid={uid},gid={gid}"
    kernel.mount("tmpfs", TMP, "tmpfs", MS_NOSUID | MS_NODEV | (0 if execute else kernel.MS_NOEXEC), options)


def renew_tmp(size_bytes: int, uid: int, gid: int, *, execute: bool) -> None:
    """Replace the used /tmp by a fresh one."""
    kernel.unmount(TMP)
    mount_tmp(size_bytes, uid, gid, execute=execute)
