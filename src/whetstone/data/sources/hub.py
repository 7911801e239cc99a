"""Files of a dataset on the Hugging Face hub, at one commit.

``huggingface_hub`` does the transfer: it caches complete files, resumes after a broken connection, and reads
the token and ``HF_ENDPOINT``. The list of files of a revision is cached here, so that ``HF_HUB_OFFLINE=1``
finds earlier downloads and names what is missing. Every failure is a UserError that states the remedy.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib
import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import write_file

_SHORT_HASH = re.compile("[0-9a-f]{7,39}")
_LOCAL = "or give local files: NAME=PATH"
_LISTING_TIMEOUT_S = 60.0


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
                f"downloading needs huggingface_hub: pip install 'whetstone-rl[data]', {_LOCAL}"
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
        if isinstance(cached, str) or not file.sha256 or _sha256(path) == file.sha256:
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
            commit = self._full_commit(api, repo_id, revision)
            info = api.dataset_info(repo_id, revision=commit, files_metadata=True, timeout=_LISTING_TIMEOUT_S)
        files = tuple(
            _HubFile(entry.rfilename, entry.size or 0, entry.lfs.sha256 if entry.lfs else "")
            for entry in info.siblings
        )
        listing = HubFiles(repo_id, info.sha, files)
        write_file(self._listing_file(repo_id, revision), [msgspec.json.encode(listing)])
        return listing

    def _full_commit(self, api: Any, repo_id: str, revision: str) -> str:
        """Return the commit of a short hash. The hub accepts only branches, tags and whole hashes."""
        if not _SHORT_HASH.fullmatch(revision):
            return revision
        commits = api.list_repo_commits(repo_id, repo_type="dataset")
        found = [str(commit.commit_id) for commit in commits if commit.commit_id.startswith(revision)]
        return found[0] if len(found) == 1 else revision

    def _cached_listing(self, repo_id: str, revision: str) -> HubFiles:
        cached = self._listing_file(repo_id, revision)
        if not cached.is_file():
            raise UserError(
                f"{repo_id} at {revision} was not downloaded before, and HF_HUB_OFFLINE is set: "
                f"unset it, {_LOCAL}"
            )
        return msgspec.json.decode(cached.read_bytes(), type=HubFiles)

    def _listing_file(self, repo_id: str, revision: str) -> Path:
        base = self._cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whetstone"
        return base / "hub-listings" / f"{repo_id}@{revision}.json".replace("/", "--")

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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__
