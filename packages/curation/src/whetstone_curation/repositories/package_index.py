"""Fetch the source distribution of a package from the index that pip is configured to use.

``pip download`` builds a distribution for its metadata, which runs its code and needs build back ends. So the
index is read here, as JSON. Nothing of a distribution is run.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from urllib.error import HTTPError

import msgspec
from msgspec import Struct, field
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from whetstone.core.errors import UserError

_DEFAULT_INDEX = "https://pypi.org/simple"
_TYPE = "application/vnd.pypi.simple.v1+json"
_MOST_BYTES = 64 << 20
_TIMEOUT_S = 60.0
_OTHERWISE = "get the archive with a browser, and give its path"


class Unsuitable(Exception):
    """A package that gives no tasks. The message is the reason, with the remedy where there is one."""


class _File(Struct):
    """One file of an index, as PEP 691 describes it."""

    filename: str
    url: str
    hashes: dict[str, str] = field(default_factory=dict[str, str])
    requires_python: str | None = field(default=None, name="requires-python")
    yanked: bool | str = False


class _Project(Struct):
    files: list[_File]


@functools.cache
def configured_index() -> str:
    """Return the address of the index in pip's configuration."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return os.environ.get("PIP_INDEX_URL") or configured.strip() or _DEFAULT_INDEX


def fetch_source(requirement: str) -> tuple[str, Version, bytes]:
    """Return the name, the version and the archive of the newest source distribution in the index.

    Raises Unsuitable if there is none, and UserError if the index cannot be read or a digest is wrong.
    """
    try:
        wanted = Requirement(requirement)
    except InvalidRequirement as error:
        raise UserError(f"{requirement}: {error}; name a package as for pip, or a path with a /") from None
    project = canonicalize_name(wanted.name)
    page = f"{configured_index().rstrip('/')}/{project}/"
    files = dict(_sources(_read(page), page, project))
    versions = sorted(wanted.specifier.filter(files), reverse=True)
    if not versions:
        raise Unsuitable("the index has no matching source distribution (.tar.gz); give another version")
    file = files[versions[0]]
    url = urllib.parse.urljoin(page, file.url)
    data = _read(url)
    digest = hashlib.sha256(data).hexdigest()
    if file.hashes.get("sha256", digest) != digest:
        raise UserError(f"{url}: the file differs from the digest of the index; fetch it again")
    return project, versions[0], data


def _sources(page: bytes, url: str, project: str) -> Iterator[tuple[Version, _File]]:
    """Yield the source distributions that this Python may install."""
    try:
        files = msgspec.json.decode(page, type=_Project).files if page else []
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserError(f"{url}: not a JSON page of a package index: {error}; {_OTHERWISE}") from None
    for file in files:
        try:
            found, version = parse_sdist_filename(file.filename)
            fits = platform.python_version() in SpecifierSet(file.requires_python or "")
        except (InvalidSdistFilename, InvalidVersion, InvalidSpecifier):
            continue
        if found == project and fits and not file.yanked and file.filename.endswith(".tar.gz"):
            yield version, file


def _read(url: str) -> bytes:
    """Return the contents; nothing for a page that is not there. Raises UserError."""
    request = urllib.request.Request(url.partition("#")[0], headers={"Accept": f"{_TYPE}, */*;q=0.1"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            data = response.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, HTTPError) and error.code == HTTPStatus.NOT_FOUND:
            return b""
        raise UserError(f"{url}: cannot be read: {error}; {_OTHERWISE}") from None
    if len(data) > _MOST_BYTES:
        raise Unsuitable(f"the source distribution is larger than {_MOST_BYTES >> 20} MiB")
    return data
