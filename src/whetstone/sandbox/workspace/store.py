"""The folder of this machine that holds the bases and the layers of workspaces.

    v1/bases/HASH/         the tree of a base; never changed
    v1/owners/NAME.lock    locked by the process that owns the folder of this name, as long as it lives
    v1/owners/NAME/        its layers; removed by the next owner if it was left behind

Files have one owner on disk: our own user, or for root a user of no account. The mount of a jail shows them
as files of the user of its runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
from pathlib import Path

from whetstone.core.closing import Closing
from whetstone.sandbox.workspace import tree
from whetstone.sandbox.zygote.tmp_dir import remove_directory

# Above the user ids of a machine and of fork-servers; if a container maps few ids, one of those.
_OWNERS_ON_DISK = (0x70400000, 65533, 43210)
# Requests of ioctl for the flags of a file, and the flag of ext4 for a folder of unrelated folders.
_GET_FLAGS, _SET_FLAGS, _UNRELATED = 0x80086601, 0x40086602, 0x20000


def owner_on_disk() -> int | None:
    """Return the user who owns the files of workspaces, if this process may choose it; else None."""
    if os.geteuid() != 0:
        return None
    spans = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    for uid in _OWNERS_ON_DISK:
        if any(first <= uid < first + count for first, _, count in spans):
            return uid
    return None


def bases_below(root: Path) -> Path:
    """Return the folder with the bases of a store."""
    return Path(root).resolve() / "v1" / "bases"


class Store:
    """The folder, laid out. Several processes may use it at the same time."""

    def __init__(self, root: Path) -> None:
        """Make the missing parts. Raises OSError."""
        self.owner = owner_on_disk()
        self.bases = bases_below(root)
        self.folder = self.bases.parent
        self.owners = self.folder / "owners"
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, self.bases, self.owners):
            # Without a jail, programs must walk to a place of theirs, but not to a base.
            self.make_folder(folder, 0o700 if folder == self.bases else 0o711)

    def make_folder(self, path: Path, mode: int) -> Path:
        """Make a folder that the mounts of jails show as a folder of their user, unless it exists."""
        path.mkdir(exist_ok=True)
        path.chmod(mode)
        if self.owner is not None:
            os.chown(path, self.owner, self.owner)
        return path


class OwnFolder(Closing):
    """A folder of this process in a store. Those of processes that have ended are removed first."""

    def __init__(self, store: Store) -> None:
        """Make it. Raises OSError."""
        self.store = store
        _remove_left_behind(store.owners)
        while True:
            name = f"{os.getpid()}-{secrets.token_hex(8)}"
            self._lock_path = store.owners / f"{name}.lock"
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):  # another process has removed it before the lock
                if os.path.samestat(os.fstat(self._lock), self._lock_path.stat()):
                    break
            os.close(self._lock)
        self.path = store.make_folder(store.owners / name, 0o711)
        _spread(self.path)

    def make_folder(self, name: str, mode: int) -> Path:
        """Make a folder in it."""
        return self.store.make_folder(self.path / name, mode)

    def close(self) -> None:
        """Remove it with everything in it."""
        remove_directory(str(self.path))
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)


def _spread(path: Path) -> None:
    """Let ext4 put each folder in this one into another part of the disk. Other file systems refuse that.

    For a new file, ext4 searches a part of the disk for an inode, and passes over each one that was freed in
    the last seconds. After the removal of some thousand files there, a new file takes half a millisecond.
    """
    with tree.folder(str(path)) as fd, contextlib.suppress(OSError):
        [flags] = struct.unpack("i", fcntl.ioctl(fd, _GET_FLAGS, bytes(4)))
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("i", flags | _UNRELATED))


def _remove_left_behind(owners: Path) -> None:
    """Remove the folders whose process has ended. The kernel has released their locks."""
    for lock_path in owners.glob("*.lock"):
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_directory(str(lock_path.with_suffix("")))
            lock_path.unlink(missing_ok=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
