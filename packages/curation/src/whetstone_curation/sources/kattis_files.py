"""The files of Kattis problem packages, in folders or zip files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast

import yaml

from whetstone.core.errors import UserError
from whetstone.core.yaml_text import parse_yaml
from whetstone.data.sources.source import Row, Skip

SETTINGS = "problem.yaml"
# The decompressed sizes of one file of a package, and of all files that are read.
MOST_FILE_BYTES, MOST_BYTES = 1 << 28, 1 << 30


class Package:
    """Files by their names relative to the package, with their sizes in bytes (as stated by a zip file). They
    are read on demand, never beyond the stated size."""

    def __init__(self, sizes: Mapping[str, int], read: Callable[[str], bytes]) -> None:
        self._names = sorted(sizes)
        self._sizes = dict(sizes)
        self._read = read
        self._total = 0

    def __contains__(self, name: object) -> bool:
        return name in self._sizes

    def below(self, folder: str, ending: str = "") -> list[str]:
        """Return the names in a folder and its subfolders, in order, without hidden files."""
        names = [name for name in self._names if name.startswith(folder) and name.endswith(ending)]
        return [name for name in names if not PurePosixPath(name).name.startswith(".")]

    def text(self, name: str) -> str:
        """Return the text of a file with its line ends. Raises Skip for a file that is not text, too large or
        broken."""
        size = self._sizes.get(name, 0)
        self._total += size
        if size > MOST_FILE_BYTES or self._total > MOST_BYTES:
            raise Skip(
                "tests_too_large",
                f"{name} has {size >> 20} MB, with what was read before {self._total >> 20} MB; most are "
                f"{MOST_FILE_BYTES >> 20} MB a file and {MOST_BYTES >> 20} MB a package",
            )
        try:
            return self._read(name).decode()
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
            OSError,
        ) as error:
            raise Skip("broken_zip", f"{name} cannot be read: {error}") from None
        except UnicodeDecodeError as error:
            raise Skip("not_text", f"{name} is not UTF-8: {error}") from None

    def yaml(self, name: str) -> dict[str, Any]:
        """Return the mapping in a YAML file; an empty file is an empty mapping. Raises Skip."""
        try:
            value = parse_yaml(self.text(name))
        except yaml.YAMLError as error:
            raise Skip("broken_yaml", f"{name}: {' '.join(str(error).split())}") from None
        if value is not None and not isinstance(value, dict):
            raise Skip("broken_yaml", f"{name} is not a mapping")
        return cast("dict[str, Any]", value or {})


def read_packages(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield (place, row) of the packages at ``path``: itself, or those in the folder. A row has ``id`` and
    ``files``, a Package. Raises UserError if there is none or a zip file cannot be read."""
    found = 0
    for place, package in _packages(path):
        found += 1
        yield str(place), {"id": place.name.removesuffix(".zip"), "files": package}
    if not found:
        raise UserError(
            f"{path}: neither a package (a folder or zip file with {SETTINGS}) nor a folder of packages"
        )


def _packages(path: Path) -> Iterator[tuple[Path, Package]]:
    if path.is_file() or (path / SETTINGS).is_file():
        places = [path]
    else:
        places = sorted(path.iterdir()) if path.is_dir() else []
    for place in places:
        if (place / SETTINGS).is_file():
            yield place, _of_folder(place)
        elif place.is_file() and place.suffix == ".zip":
            package = _of_zip(place)
            if package is not None:
                yield place, package


def _of_folder(folder: Path) -> Package:
    files = [file for file in folder.rglob("*") if file.is_file()]
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files}
    return Package(sizes, lambda name: (folder / name).read_bytes())


def _of_zip(file: Path) -> Package | None:
    """Return the package in a zip file, at its top or in its only folder; None if there is none."""
    try:
        with zipfile.ZipFile(file) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{file}: cannot be read as a zip file: {error}") from None
    settings = min((n for n in sizes if PurePosixPath(n).name == SETTINGS), key=len, default=None)
    if settings is None:
        return None
    root = settings.removesuffix(SETTINGS)

    def read(name: str) -> bytes:
        # `read()` without a number decompresses everything, whatever size the archive states.
        with zipfile.ZipFile(file) as archive, archive.open(root + name) as packed:
            return packed.read(sizes[root + name] + 1)

    own = {name.removeprefix(root): size for name, size in sizes.items() if name.startswith(root)}
    return Package(own, read)
