"""Read installed distributions: name, version, requirements, and their names in their folder.

``importlib.metadata`` finds them. Its import is slow, so only the functions that search import it. Their
metadata is parsed here, because the library parses it again for each attribute. It also creates a path object
for each line of RECORD, of which large packages have thousands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_HEADER = re.compile(r"^(Name|Version|Requires-Dist):[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_END_OF_HEADERS = re.compile(r"^\r?\n", re.MULTILINE)
_PROJECT = re.compile(r"[A-Za-z0-9._-]*")
# A line of RECORD is `path,hash,size`. The path is quoted if it contains a comma.
_TOP_NAME = re.compile(r'^"?([^/,"\r\n]+)', re.MULTILINE)
_EXTRA = re.compile(r"""extra == ["']([\w.-]+)["']""")
_NOT_PACKAGES = frozenset({"..", "__pycache__"})


class InstalledDistribution(Struct, frozen=True):
    """One distribution.

    ``requires`` are normalised names without extras; ``names`` are entries of ``folder``.
    """

    name: str
    version: str
    folder: str
    requires: list[str]
    names: list[str]


def installed_in(folder: str) -> list[InstalledDistribution]:
    """Return all distributions in a folder of packages."""
    from importlib.metadata import distributions

    return [_read(found) for found in distributions(path=[folder])]


def with_requirements(names: Iterable[str]) -> list[InstalledDistribution]:
    """Return the distributions with these names on ``sys.path``, and everything that they require."""
    from importlib.metadata import PackageNotFoundError, distribution

    pending, found = list(names), dict[str, InstalledDistribution]()
    while pending:
        name = normal_name(pending.pop())
        if name in found:
            continue
        try:
            found[name] = _read(distribution(name))
        except PackageNotFoundError:
            continue
        pending += found[name].requires
    return list(found.values())


def extras_of(project: str) -> dict[str, list[str]]:
    """Return the names of the distributions that each extra of an installed project requires.

    Empty if the project is not installed.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(project)
    except PackageNotFoundError:
        return {}
    extras: dict[str, list[str]] = {}
    for need in found.requires or ():
        if (extra := _EXTRA.search(need)) and (name := _PROJECT.match(need)):
            extras.setdefault(extra[1], []).append(normal_name(name[0]))
    return extras


def version_of(project: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(project)
    except PackageNotFoundError:
        return None


def normal_name(name: str) -> str:
    """Return the normalised name of a distribution. Two names are equal if their normalised names are."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(found: Distribution) -> InstalledDistribution:
    text = found.read_text("METADATA") or found.read_text("PKG-INFO") or ""
    end = _END_OF_HEADERS.search(text)
    headers = _HEADER.findall(text, 0, end.start() if end else len(text))
    header = dict(headers)
    needs = [value for key, value in headers if key == "Requires-Dist"]
    # An egg has its requirements in another file.
    if not needs and found.read_text("requires.txt") is not None:
        needs = found.requires or []
    record = found.read_text("RECORD")
    if record is None:
        entries = {file.parts[0] for file in found.files or ()}
    else:
        entries = set(_TOP_NAME.findall(record))
    always = [need for need in needs if "extra ==" not in need]
    return InstalledDistribution(
        header.get("Name") or found.name,
        header.get("Version") or found.version,
        os.path.realpath(str(found.locate_file(""))),
        [normal_name(match[0]) for need in always if (match := _PROJECT.match(need))],
        sorted(entries - _NOT_PACKAGES),
    )
