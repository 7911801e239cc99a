"""The code base of a task: regular files in an archive, read into memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from whetstone.core.errors import UserError

MOST_FILES, MOST_BYTES = 4000, 128 << 20
_MOST_PATH_CHARS, _MOST_NAME_BYTES = 1000, 255
Files = Mapping[str, bytes]
"""The contents of files by their relative path."""


def read_base(archive: Path) -> dict[str, bytes]:
    """Return the files of an archive. Raises UserError for one that is malformed or too large.

    Links and special files are refused. Folders without files are not kept.
    """
    files: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                if member.isdir():
                    continue
                name = member.name.removeprefix("./")
                if not member.isreg() or not is_file_path(name):
                    raise UserError(f"{archive}: {name[:200]!r} is no regular file inside of the archive")
                total += member.size
                if len(files) >= MOST_FILES or total > MOST_BYTES:
                    raise UserError(
                        f"{archive}: more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB; remove what "
                        "the tests do not need"
                    )
                content = tar.extractfile(member)
                assert content is not None  # it is a regular file
                files[name] = content.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"{archive}: not a readable archive of a code base: {error}") from None
    return files


def is_file_path(path: str) -> bool:
    """Return whether a text is a relative path that every file system of a sandbox can hold."""
    if len(path) > _MOST_PATH_CHARS or "\0" in path:
        return False
    try:
        names = path.encode().split(b"/")
    except UnicodeEncodeError:
        return False
    return all(name not in (b"", b".", b"..") and len(name) <= _MOST_NAME_BYTES for name in names)


def folders_above(path: str) -> list[str]:
    """Return the folders in which a path is, the first one first."""
    return [path[:end] for end, letter in enumerate(path) if letter == "/"]


def too_large(files: Files) -> str:
    """Return why files are more than a sandbox takes; empty if they are not."""
    folders: set[str] = set()
    for name in files:
        folders.update(folders_above(name))
        if max(len(files), len(folders)) > MOST_FILES:
            return f"more than {MOST_FILES} files or folders"
    if sum(map(len, files.values())) > MOST_BYTES:
        return f"more than {MOST_BYTES >> 20} MiB"
    return ""


def base_name(files: Files) -> str:
    """Return the name of a code base: a digest of its files."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode())
        digest.update(files[name])
    return digest.hexdigest()[:24]


def pack_base(files: Files) -> bytes:
    """Return an archive of files. Equal files give equal bytes."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(files[name]), 0o755
            tar.addfile(member, io.BytesIO(files[name]))
    return buffer.getvalue()
