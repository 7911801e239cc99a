"""Folders of installed Python packages, which programs must not read: problem sets with their answers, our
own among them, are installed there, beneath the very folders in which an interpreter has its library.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Collection, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)

_PATTERNS = ("*-packages", "python*/*-packages")


class _ShownFinder(FileFinder):
    """Finds the names of a folder that are shown, as if no others were there.

    Landlock leaves the others in sight, and an import that finds what it may not read fails otherwise than
    one that finds nothing: packages import others only where there are any.
    """

    def __init__(self, folder: str, names: Collection[str]) -> None:
        super().__init__(
            folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, SOURCE_SUFFIXES)
        )
        self._names = names

    def _fill_cache(self) -> None:
        self._path_cache = set(self._names)


def search(folders: Sequence[str], reads: Sequence[str]) -> None:
    """Put folders at the end of ``sys.path``, in which what ``reads`` names can be imported."""
    sys.path += folders
    for folder in folders:
        if folder not in reads:
            names = [os.path.basename(path) for path in reads if os.path.dirname(path) == folder]
            sys.path_importer_cache[folder] = _ShownFinder(folder, names)


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
