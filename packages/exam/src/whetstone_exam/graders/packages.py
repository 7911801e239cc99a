"""Installed packages of other projects: their versions and folders."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from whetstone.core.errors import UserError


def installed_version(distribution: str, install: str) -> str:
    """Return the version of an installed distribution.

    ``install``: the command that installs it. Raises UserError if it is missing.
    """
    try:
        return version(distribution)
    except PackageNotFoundError:
        raise _missing(distribution, install) from None


def package_folder(name: str, install: str) -> Path:
    """Return the folder of an importable package, without importing it.

    ``install``: the command that installs it. Raises UserError if it is missing.
    """
    found = find_spec(name)
    if found is None or found.origin is None:
        raise _missing(name, install)
    return Path(found.origin).parent


def _missing(name: str, install: str) -> UserError:
    return UserError(f"{name} is not installed: {install}, or name its interpreter with --python")
