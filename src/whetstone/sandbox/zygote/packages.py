"""Folders of installed Python packages, which programs must not read: problem sets with their answers, our
own among them, are installed there, beneath the very folders in which an interpreter has its library.
"""

from __future__ import annotations

import glob
import os

_PATTERNS = ("*-packages", "python*/*-packages")


def package_folders(path: str) -> list[str]:
    """The ``site-packages`` and ``dist-packages`` of the interpreters that have their library in ``path``."""
    return [found for pattern in _PATTERNS for found in glob.glob(os.path.join(path, pattern))]


def without_packages(path: str) -> tuple[list[str], list[str]]:
    """What is left of a folder without its packages.

    The first list may be read with all beneath. The second are the folders that lead to packages: only
    their own names may be listed.
    """
    return _without(path, package_folders(path))


def _without(path: str, hidden: list[str]) -> tuple[list[str], list[str]]:
    if not hidden:
        return [path], []
    readable: list[str] = []
    listed = [path]
    with os.scandir(path) as entries:
        # What a link leads to is readable by its own place or not at all.
        names = sorted(entry.path for entry in entries if not entry.is_symlink())
    for name in names:
        if name in hidden:
            continue
        beneath = [folder for folder in hidden if folder.startswith(name + "/")]
        inner_readable, inner_listed = _without(name, beneath)
        readable += inner_readable
        listed += inner_listed
    return readable, listed
