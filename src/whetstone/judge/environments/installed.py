"""Installed distributions: name, version, requirements, and the names they have in their folder.

``importlib.metadata`` finds them; it takes long to import, so only the functions that search import it. Their
metadata is read here: the library parses it again for each attribute, and makes a path object of every line
of RECORD, of which large packages have thousands.
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
# A line of RECORD is `path,hash,size`, the path quoted where it has a comma.
_FIRST_PART = re.compile(r'^"?([^/,"\r\n]+)', re.MULTILINE)
_EXTRA = re.compile(r"""extra == ["']([\w.-]+)["']""")
_NOT_PACKAGES = frozenset({"..", "__pycache__"})


class Installed(Struct, frozen=True):
    """One distribution. ``requires`` are normal names without extras; ``names`` lie in ``folder``."""

    name: str
    version: str
    folder: str
    requires: list[str]
    names: list[str]


def installed_in(folder: str) -> list[Installed]:
    """All distributions of one folder of packages."""
    from importlib.metadata import distributions

    return [_read(found) for found in distributions(path=[folder])]


def with_requirements(names: Iterable[str]) -> list[Installed]:
    """The distributions with these names on ``sys.path``, and all that they require."""
    from importlib.metadata import PackageNotFoundError, distribution

    waiting, found = list(names), dict[str, Installed]()
    while waiting:
        name = normal_name(waiting.pop())
        if name in found:
            continue
        try:
            found[name] = _read(distribution(name))
        except PackageNotFoundError:
            continue
        waiting += found[name].requires
    return list(found.values())


def extras_of(project: str) -> dict[str, list[str]]:
    """The names of the distributions that each extra of an installed project requires.

    Empty for a project that is not installed.
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
    """The version of an installed distribution; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(project)
    except PackageNotFoundError:
        return None


def normal_name(name: str) -> str:
    """The name of a distribution in the form in which two names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(found: Distribution) -> Installed:
    text = found.read_text("METADATA") or found.read_text("PKG-INFO") or ""
    end = _END_OF_HEADERS.search(text)
    headers = _HEADER.findall(text, 0, end.start() if end else len(text))
    one = dict(headers)
    needs = [value for key, value in headers if key == "Requires-Dist"]
    if not needs and found.read_text("requires.txt") is not None:  # an egg
        needs = found.requires or []
    return Installed(
        one.get("Name") or found.name,
        one.get("Version") or found.version,
        os.path.realpath(str(found.locate_file(""))),
        _required(needs),
        _names(found),
    )


def _required(needs: list[str]) -> list[str]:
    always = [need for need in needs if "extra ==" not in need]
    return [normal_name(match[0]) for need in always if (match := _PROJECT.match(need))]


def _names(found: Distribution) -> list[str]:
    record = found.read_text("RECORD")
    if record is None:
        names = {file.parts[0] for file in found.files or ()}
    else:
        names = set(_FIRST_PART.findall(record))
    return sorted(names - _NOT_PACKAGES)
