"""Fetch the source distribution of a package from the indexes that pip is configured to use.

``pip download`` builds a distribution for its metadata, which runs its code and needs build back ends. So the
indexes are read here, as HTML or JSON. Nothing of a distribution is run.
"""

from __future__ import annotations

import hashlib
import platform
import re
import ssl
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError

import msgspec
from msgspec import Struct, field
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from whetstone.core.errors import UserError
from whetstone.core.literal import read_literal

_DEFAULT_INDEX = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_MOST_BYTES = 64 << 20
_TIMEOUT_S = 60.0
# Sections of pip's configuration. A later one counts more.
_SECTIONS = ("global", "install", "download", ":env:")
_OPTION = re.compile(rf"^({'|'.join(_SECTIONS)})\.([a-z-]+)=(.*)$", re.MULTILINE)


class Unsuitable(Exception):
    """A package that gives no tasks. The message is the reason, with the remedy where there is one."""


class SourceLink(NamedTuple):
    """A source distribution in an index. ``sha256`` is empty if the index does not state it."""

    version: Version
    url: str
    sha256: str


class _File(Struct):
    """One file of an index, as PEP 691 describes it."""

    filename: str
    url: str
    hashes: dict[str, str] = field(default_factory=dict[str, str])
    requires_python: str | None = field(default=None, name="requires-python")
    yanked: bool | str = False


class _Project(Struct):
    files: list[_File]


class PackageIndexes:
    """The indexes and folders of pip's configuration."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        """``options``: pip's options by name, such as ``index-url`` (default: of its configuration)."""
        found = pip_options() if options is None else options
        indexes = [found.get("index-url", _DEFAULT_INDEX), *found.get("extra-index-url", "").split()]
        self._indexes = [] if found.get("no-index", "").lower() in ("1", "true", "yes", "on") else indexes
        self._folders = found.get("find-links", "").split()
        certificates = found.get("cert")
        self._context = ssl.create_default_context(cafile=certificates) if certificates else None

    def fetch(self, requirement: str) -> tuple[str, Version, bytes]:
        """Return the name, the version and the archive of the newest source distribution.

        Raises Unsuitable if there is none, and UserError if no index can be read or a digest is wrong.
        """
        try:
            wanted = Requirement(requirement)
        except InvalidRequirement as error:
            raise UserError(
                f"{requirement}: {error}; name a package as for pip, or a path with a /"
            ) from None
        links = {link.version: link for link in self._links(wanted.name)}
        versions = sorted(wanted.specifier.filter(links), reverse=True)
        if not versions:
            raise Unsuitable("no index has a matching source distribution (.tar.gz); give another version")
        link = links[versions[0]]
        data = self._read(link.url)[1]
        if link.sha256 and hashlib.sha256(data).hexdigest() != link.sha256:
            raise UserError(f"{link.url}: the file differs from the digest of the index; fetch it again")
        return str(canonicalize_name(wanted.name)), link.version, data

    def _links(self, name: str) -> Iterator[SourceLink]:
        """Yield the source distributions that this Python may install. Later indexes do not replace any."""
        project = canonicalize_name(name)
        pages = [f"{index.rstrip('/')}/{project}/" for index in reversed(self._indexes)]
        for page in [*self._folders, *pages]:
            for file in self._files(page):
                if file.yanked or not _fits(file.requires_python):
                    continue
                try:
                    found, version = parse_sdist_filename(file.filename)
                except (InvalidSdistFilename, InvalidVersion):
                    continue
                if found == project and file.filename.endswith(".tar.gz"):
                    url = urllib.parse.urljoin(page, file.url)
                    yield SourceLink(version, url, file.hashes.get("sha256", ""))

    def _files(self, page: str) -> list[_File]:
        if "://" not in page:
            page = Path(page).absolute().as_uri() + ("/" if Path(page).is_dir() else "")
        local = Path(urllib.request.url2pathname(page.removeprefix("file://")))
        if page.startswith("file:"):
            if local.is_dir() and not (local / "index.html").is_file():
                return [_File(path.name, path.as_uri()) for path in sorted(local.iterdir())]
            if not local.exists():
                return []
            page = (local / "index.html").as_uri() if local.is_dir() else page
        kind, data = self._read(page)
        if kind == "application/vnd.pypi.simple.v1+json":
            try:
                return msgspec.json.decode(data, type=_Project).files
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise UserError(f"{page}: not a page of a package index: {error}") from None
        return _Page(data.decode("utf-8", "replace")).files

    def _read(self, url: str) -> tuple[str, bytes]:
        """Return the type and the contents; nothing for a page that is not there. Raises UserError."""
        request = urllib.request.Request(url.partition("#")[0], headers={"Accept": _ACCEPT})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._context) as response:
                data = response.read(_MOST_BYTES + 1)
                kind = response.headers.get_content_type()
        except (OSError, ValueError) as error:
            if isinstance(error, HTTPError) and error.code == HTTPStatus.NOT_FOUND:
                return "", b""
            raise UserError(f"{url}: cannot be read: {error}; see `pip config list`") from None
        if len(data) > _MOST_BYTES:
            raise Unsuitable(f"the source distribution is larger than {_MOST_BYTES >> 20} MiB")
        return kind, data


class _Page(HTMLParser):
    """The links of a page of an index in HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.files: list[_File] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a link."""
        values = dict(attrs)
        if tag != "a" or not (target := values.get("href")):
            return
        url, _, fragment = target.partition("#")
        algorithm, _, digest = fragment.partition("=")
        name = urllib.parse.unquote(url.rpartition("/")[2])
        hashes = {algorithm: digest} if digest else {}
        self.files.append(
            _File(name, url, hashes, values.get("data-requires-python"), "data-yanked" in values)
        )


def _fits(python: str | None) -> bool:
    try:
        return platform.python_version() in SpecifierSet(python or "")
    except InvalidSpecifier:
        return False


def pip_options() -> dict[str, str]:
    """Return the options of pip's configuration by name. Those of the environment count most."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    options = sorted(_OPTION.findall(text), key=lambda option: _SECTIONS.index(option[0]))
    return {name: str(read_literal(value)) for _, name, value in options}
