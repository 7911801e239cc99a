"""Workspaces in a jail: the supervisor mounts the one of the next run, and no run reaches the others.

A mount of the folder with all workspaces lies under an empty mount, so no path leads to it. The supervisor
keeps it as its working directory, and mounts by names relative to it. If this is root's folder, its files
have one owner on disk, and this mount shows them as files of the user of the runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from . import kernel

# Below the only directory where programs may write: see ``jail.WRITABLE_PARENT``.
WORKSPACE = "/w/workspace"
_HIDDEN = "/workspaces"
# The kinds of request, as the first field: an overlay of a layer over a base, a folder, or nothing.
OVERLAY, FOLDER, NOTHING = b"o", b"f", b""
_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV
# Only this form of overlayfs may be mounted in a user namespace. Volatile: no data is written to disk early.
_OPTIONS = "userxattr,volatile,metacopy=off,index=off,xino=off"
_BUSY_TRIES, _BUSY_WAIT_S = 100, 0.01


def claim(folder: str, uid: int | None) -> int:
    """Return a mount of ``folder`` that is nowhere yet. With ``uid``, this user owns the files in it.

    Raises StepRefused, for a change of owners also before Linux 5.12 and for file systems that cannot.
    """
    mount_fd = kernel.clone_mount(folder)
    if uid is None:
        kernel.restrict_mount(mount_fd, None)
        return mount_fd
    namespace = _namespace_of_owners(f"{os.stat(folder).st_uid} {uid} 1\n0 0 1\n")
    try:
        kernel.restrict_mount(mount_fd, namespace)
    finally:
        os.close(namespace)
    return mount_fd


def _namespace_of_owners(owners: str) -> int:
    """Return a user namespace with this map. It exists only as a description of owners."""
    ready, child_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            kernel.unshare(kernel.CLONE_NEWUSER, "user namespace")
            os.write(child_end, b".")
            while True:
                signal.pause()
        os._exit(1)
    os.close(child_end)
    try:
        if not os.read(ready, 1):
            raise kernel.StepRefused("a user namespace for the owners of workspaces")
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "w") as file:
                file.write(owners)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise kernel.refused_by("a map of the owners of workspaces", error) from None
    finally:
        os.close(ready)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def place(mount_fd: int, root: str) -> None:
    """In the template process: put the claimed mount into the root that is being built."""
    os.mkdir(root + WORKSPACE, 0o755)
    os.mkdir(root + _HIDDEN, 0o700)
    kernel.place_mount(mount_fd, root + _HIDDEN)
    os.close(mount_fd)


def hide() -> None:
    """In the supervisor: enter the folder with all workspaces, and cover it for all others."""
    os.chdir(_HIDDEN)
    kernel.mount("tmpfs", _HIDDEN, "tmpfs", _FLAGS | kernel.MS_RDONLY, "size=4k,mode=0")


def mount(request: bytes) -> None:
    """In the supervisor: replace the mounted workspace by the requested one. Raises StepRefused."""
    kind, *names = request.split(b"\0")
    if os.path.ismount(WORKSPACE):
        _unmount()
    if kind == OVERLAY:
        lower, upper, work = (name.decode() for name in names)
        options = f"lowerdir={lower},upperdir={upper},workdir={work},{_OPTIONS}"
        kernel.mount("overlay", WORKSPACE, "overlay", _FLAGS, options)
    elif kind == FOLDER:
        kernel.mount(names[0].decode(), WORKSPACE, None, kernel.MS_BIND)


def _unmount() -> None:
    """Unmount the workspace. The kernel may close the files of ended processes a moment later."""
    for _ in range(_BUSY_TRIES):
        try:
            return kernel.unmount_unused(WORKSPACE)
        except kernel.StepRefused:
            time.sleep(_BUSY_WAIT_S)
    raise kernel.StepRefused("unmount a workspace: a process still uses it")
