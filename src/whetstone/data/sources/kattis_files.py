"""The files of Kattis problem packages: of folders and of zip files, alike."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, cast

import yaml

from whetstone.data.sources.source import Row, Skip
from whetstone.errors import UserError

SETTINGS = "problem.yaml"


class Package:
    """Files by their names relative to the package, read when asked for."""

    def __init__(self, names: list[str], read: Callable[[str], bytes]) -> None:
        self._names = sorted(names)
        self._known = frozenset(names)
        self._read = read

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def below(self, folder: str, ending: str = "") -> list[str]:
        """Names in a folder and its folders, in order; editors' and systems' own files left out."""
        names = [name for name in self._names if name.startswith(folder) and name.endswith(ending)]
        return [name for name in names if not PurePosixPath(name).name.startswith(".")]

    def text(self, name: str) -> str:
        """A file's text, line ends as they are. Raises Skip where it is none."""
        try:
            return self._read(name).decode()
        except UnicodeDecodeError as error:
            raise Skip("not_text", f"{name} is not UTF-8: {error}") from None

    def yaml(self, name: str) -> dict[str, Any]:
        """The mapping in a YAML file; an empty file holds an empty one. Raises Skip."""
        try:
            value = yaml.safe_load(self.text(name))
        except yaml.YAMLError as error:
            raise Skip("broken_yaml", f"{name}: {' '.join(str(error).split())}") from None
        if value is not None and not isinstance(value, dict):
            raise Skip("broken_yaml", f"{name} holds no mapping")
        return cast("dict[str, Any]", value or {})


def read_packages(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield (place, row) of the packages at ``path``: itself, or those in the folder. A row holds ``id`` and
    ``files``, a Package. Raises UserError where there is none, or a zip file cannot be read."""
    found = 0
    for place, package in _packages(path):
        found += 1
        yield str(place), {"id": place.name.removesuffix(".zip"), "files": package}
    if not found:
        raise UserError(
            f"{path}: neither a package (a folder or zip file with {SETTINGS}) nor a folder of some"
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
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    return Package(names, lambda name: (folder / name).read_bytes())


def _of_zip(file: Path) -> Package | None:
    """The package in a zip file, at its top or in its only folder; None where there is none."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{file}: cannot be read as a zip file: {error}") from None
    settings = min((n for n in names if PurePosixPath(n).name == SETTINGS), key=len, default=None)
    if settings is None:
        return None
    root = settings.removesuffix(SETTINGS)

    def read(name: str) -> bytes:
        with zipfile.ZipFile(file) as archive:
            return archive.read(root + name)

    return Package([name.removeprefix(root) for name in names if name.startswith(root)], read)
