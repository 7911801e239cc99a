"""Read a source distribution: the files that its tests need, its import packages, tests and requirements."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct, field
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from whetstone.core.errors import UserError
from whetstone.judge.repository.base import MOST_BYTES, MOST_FILES, pack_base
from whetstone_curation.repositories.package_index import Unsuitable

# Folders and files that tests do not need, or that could hold a copy of the code.
_FOLDERS = frozenset({"__pycache__", ".git", ".hg", ".tox", ".eggs", "node_modules"})
_TOP_FOLDERS = frozenset(
    {"build", "dist", "doc", "docs", "examples", "example", "benchmarks", "benchmark", "scripts", ".github"}
)
_ENDINGS = frozenset(
    {".pyc", ".pyo", ".pyd", ".so", ".dll", ".dylib", ".a", ".o", ".whl", ".egg", ".exe", ".orig", ".rej"}
    | {".bak", ".c", ".cpp", ".h", ".pyx", ".pxd", ".pdf", ".gif", ".ico"}
)
_TOP_ENDINGS = frozenset({".md", ".rst", ".txt", ".cfg~", ".lock"})
_TESTS = re.compile(r"(?:test_[^/]*|[^/]*_test|tests?)\.py")
_TEST_FOLDERS = frozenset({"test", "tests", "testing"})
_NO_ROOTS = frozenset(
    {"setup", "conftest", "noxfile", "tasks", "versioneer", "ez_setup", "runtests", "fabfile"}
)
_MOST_LICENCE = 60


class SourceTree(Struct, frozen=True):
    """A source distribution.

    files: contents by path, without what tests do not need. roots: the packages and modules that it installs.
    python_path: the folder of these, and the top folder. tests: the test modules. requires: the normalised
    names of what it needs at run time. digest: SHA-256 of the archive, or of all files.
    """

    name: str
    version: str
    licence: str
    digest: str
    files: dict[str, bytes]
    roots: list[str]
    python_path: list[str]
    tests: list[str]
    requires: list[str]

    @property
    def label(self) -> str:
        """The name and the version."""
        return f"{self.name}-{self.version}" if self.version else self.name

    def in_tests(self, path: str) -> bool:
        """Return whether a file is a test module or lies in a folder of tests."""
        return path in self.tests or not _TEST_FOLDERS.isdisjoint(path.split("/")[:-1])


def read_distribution(data: bytes, name: str = "", version: str = "") -> SourceTree:
    """Read the archive of a source distribution. Raises Unsuitable."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as tar:
            files = _needed(_members(tar))
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Unsuitable(f"not a readable archive: {error}") from None
    return _tree(files, name, version, hashlib.sha256(data).hexdigest())


def read_local(place: Path) -> SourceTree:
    """Read a folder or an archive of this machine. Raises Unsuitable, and UserError if it is not there."""
    if not place.exists():
        raise UserError(f"{place}: not there; name a package of an index, a folder or an archive")
    if not place.is_dir():
        return read_distribution(place.read_bytes())
    paths = [path for path in sorted(place.rglob("*")) if path.is_file() and not path.is_symlink()]
    files = _needed(
        (path.relative_to(place).as_posix(), path.stat().st_size, path.read_bytes) for path in paths
    )
    digest = hashlib.sha256(pack_base(files)).hexdigest()
    return _tree(files, place.resolve().name, "", digest)


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Yield the regular files without their top folder. Links are left out."""
    for member in tar:
        content = tar.extractfile(member) if member.isreg() else None
        if content is not None:
            yield member.name.removeprefix("./").partition("/")[2], member.size, content.read


def _needed(entries: Iterable[tuple[str, int, Callable[[], bytes]]]) -> dict[str, bytes]:
    """Return the files that tests may need. Raises Unsuitable if they are too many or too large."""
    files: dict[str, bytes] = {}
    total = 0
    for name, size, read in entries:
        *folders, last = name.split("/")
        ending = PurePosixPath(last).suffix.lower()
        if (
            not {"", ".", ".."}.isdisjoint((*folders, last))
            or ending in _ENDINGS
            or not _FOLDERS.isdisjoint(folders)
            or (folders and folders[0] in _TOP_FOLDERS)
            or (not folders and ending in _TOP_ENDINGS)
        ):
            continue
        total += size
        if len(files) >= MOST_FILES or total > MOST_BYTES:
            raise Unsuitable(f"more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB")
        files[name] = read()
    return files


def _tree(files: dict[str, bytes], name: str, version: str, digest: str) -> SourceTree:
    metadata = {path: data for path, data in files.items() if path == "PKG-INFO" or ".egg-info/" in path}
    files = {path: data for path, data in files.items() if path not in metadata}
    header = HeaderParser().parsestr(_metadata_text(metadata, files))
    name, version = header.get("Name") or name, header.get("Version") or version
    tests = [path for path in files if _TESTS.fullmatch(path.rpartition("/")[2])]
    if not tests:
        raise Unsuitable("the source distribution has no tests; take an archive of its repository")
    folder, roots = _roots(files, name, _text(metadata, "top_level.txt").split())
    if not roots:
        raise Unsuitable("no package or module is found: neither in src, in lib, nor at the top")
    # In `requires.txt`, the requirements of extras follow under their names in brackets.
    without_extras = _text(metadata, "requires.txt").partition("[")[0]
    needs = header.get_all("Requires-Dist") or without_extras.split("\n")
    # `importlib.metadata` finds the version here. The description may contain examples, so it is left out.
    kept = [f"{key}: {header[key]}\n" for key in ("Metadata-Version", "Name", "Version") if header[key]]
    place = f"{name.replace('-', '_')}.egg-info/PKG-INFO"
    files[place if folder == "." else f"{folder}/{place}"] = "".join(kept).encode()
    return SourceTree(
        canonicalize_name(name),
        version,
        _licence(header),
        digest,
        files,
        roots,
        list(dict.fromkeys((folder, "."))),
        sorted(path for path in tests if path not in roots),
        _required(needs),
    )


class _Project(Struct):
    name: str = ""
    version: str = ""
    license: str | dict[str, str] = ""
    dependencies: list[str] = []


class _PyProject(Struct):
    project: _Project = field(default_factory=_Project)


def _metadata_text(metadata: Mapping[str, bytes], files: Mapping[str, bytes]) -> str:
    """Return the metadata; that of ``pyproject.toml`` if it was never packed."""
    if text := _text(metadata, "PKG-INFO"):
        return text
    try:
        project = msgspec.toml.decode(files.get("pyproject.toml", b""), type=_PyProject).project
    except ValueError:  # it is malformed, or has another form
        project = _Project()
    needs = "".join(f"Requires-Dist: {need}\n" for need in project.dependencies)
    licence = project.license if isinstance(project.license, str) else ""
    head = f"Metadata-Version: 2.1\nName: {project.name}\nVersion: {project.version}\n"
    return f"{head}License: {licence}\n{needs}"


def _text(metadata: Mapping[str, bytes], name: str) -> str:
    found = sorted(path for path in metadata if path.rpartition("/")[2] == name)
    return metadata[found[0]].decode("utf-8", "replace") if found else ""


def _roots(files: Collection[str], name: str, named: list[str]) -> tuple[str, list[str]]:
    """Return the folder of the import packages and modules, and their paths."""
    wanted = {*named, name.lower().replace("-", "_").replace(".", "_")}
    for folder in ("src", "lib", "."):
        start = "" if folder == "." else f"{folder}/"
        inside = [path.removeprefix(start) for path in files if path.startswith(start)]
        modules = {path.removesuffix(".py") for path in inside if path.endswith(".py") and "/" not in path}
        packages = {path.partition("/")[0] for path in inside if path.endswith("/__init__.py")}
        packages = {each for each in packages if f"{start}{each}/__init__.py" in files}
        found = {each for each in packages | modules if not _is_no_root(each)}
        chosen = found & wanted or {each for each in found if each.lower() in wanted} or found
        if chosen:
            return folder, [
                f"{start}{each}" if each in packages else f"{start}{each}.py" for each in sorted(chosen)
            ]
    return ".", []


def _is_no_root(name: str) -> bool:
    return (
        name in _NO_ROOTS | _TEST_FOLDERS | _TOP_FOLDERS
        or _TESTS.fullmatch(f"{name}.py") is not None
        or not name.isidentifier()
    )


def _required(needs: Iterable[str]) -> list[str]:
    found: set[str] = set()
    for need in needs:
        with suppress(InvalidRequirement):
            requirement = Requirement(need)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                found.add(canonicalize_name(requirement.name))
    return sorted(found)


def _licence(header: Message) -> str:
    """Return the licence of the metadata: an expression, a short text, or a classifier."""
    given = header.get("License-Expression") or header.get("License") or ""
    if 0 < len(given) <= _MOST_LICENCE and "\n" not in given:
        return given
    classes = [line for line in header.get_all("Classifier") or () if line.startswith("License ::")]
    return classes[0].rpartition(" :: ")[2] if classes else "not stated"
