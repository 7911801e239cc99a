"""Folders of installed Python packages, which programs must not read.

Problem sets with their answers are installed there, Whetstone's among them. The folders are inside the
library folders of the interpreter. So is the folder of pip's wheel, which contains copies of many packages.
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

_PATTERNS = ("*-packages", "python*/*-packages", "ensurepip/_bundled", "python*/ensurepip/_bundled")


class _ListedFinder(FileFinder):
    """Finds only the listed names of a folder, as if no other names existed.

    Landlock does not hide the other names. An import of an unreadable file raises another error than an
    import of a missing one. Packages catch only the second error for optional dependencies.
    """

    def __init__(self, folder: str, names: Collection[str]) -> None:
        super().__init__(
            folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, SOURCE_SUFFIXES)
        )
        self._names = names

    def _fill_cache(self) -> None:
        self._path_cache = set(self._names)


def add_search_folders(folders: Sequence[str], reads: Sequence[str]) -> None:
    """Append folders to ``sys.path``. Only the entries that ``reads`` names can be imported from them."""
    sys.path += folders
    for folder in folders:
        if folder not in reads:
            names = [os.path.basename(path) for path in reads if os.path.dirname(path) == folder]
            sys.path_importer_cache[folder] = _ListedFinder(folder, names)


def package_folders(path: str) -> list[str]:
    """Return the ``site-packages``, ``dist-packages`` and bundled wheels of the interpreters that have their
    library in ``path``."""
    return [found for pattern in _PATTERNS for found in glob.glob(os.path.join(path, pattern))]


def without_packages(path: str) -> tuple[list[str], list[str]]:
    """Return the contents of a folder without its packages, as two lists.

    The paths of the first list may be read with everything below them. The second has the folders that lead
    to packages: only their own names may be listed.
    """
    return _without(path, package_folders(path))


def _without(path: str, hidden: list[str]) -> tuple[list[str], list[str]]:
    if not hidden:
        return [path], []
    readable: list[str] = []
    listed = [path]
    with os.scandir(path) as entries:
        # The target of a link has its own rule or none.
        names = sorted(entry.path for entry in entries if not entry.is_symlink())
    for name in names:
        if name in hidden:
            continue
        beneath = [folder for folder in hidden if folder.startswith(name + "/")]
        inner_readable, inner_listed = _without(name, beneath)
        readable += inner_readable
        listed += inner_listed
    return readable, listed
