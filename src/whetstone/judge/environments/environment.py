"""Environments: the packages that Python programs may import. They see no other installed package.

The default environment contains the installed packages that competition programs use, with their
requirements. Other packages, and problem sets with their answers, are in the same folder, so only these
packages are visible. A separate virtual environment is visible as a whole, and must not contain Whetstone. No
code of an environment runs while it is read. So ``.pth`` files, editable installs and links to other folders
have no effect for programs.

An environment for another version of Python brings its interpreter: all Python code of a judgement, programs
and tests, then runs under it.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.optional_packages import DISTRIBUTION
from whetstone.judge.environments.installed import (
    InstalledDistribution,
    installed_in,
    normal_name,
    with_requirements,
)
from whetstone.judge.environments.pythons import OWN, Python, python_of

DEFAULT = "default"
# Packages that competition programs use: the extra ``programs`` of this distribution.
COMPETITION = ("numpy", "pandas", "scipy", "sympy", "networkx", "sortedcontainers")
# Tools for installing packages. Being required by no other package is no sign that programs use them.
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "uv"})
_OWN_PACKAGE = "whetstone"
_MAX_PRELOADED = 8
# Source files and extensions, such as `x.py`, `x.cpython-312-x86_64-linux-gnu.so` and `x.abi3.so`.
_MODULE_ENDING = re.compile(r"\.py$|(?:\.[\w-]+)?\.so$", re.ASCII)
_DIGEST_DIGITS = 10


class PackageEnvironment(Struct, frozen=True):
    """The packages of programs, as judgements report them and sandboxes show them.

    label: the name and a digest of the versions of Python and the packages. Another version of Python than
        our own stands before the digest.
    versions: the versions of its distributions by name.
    modules: its top-level modules.
    reads: files and folders that programs can read.
    folders: folders in the programs' search path.
    preload: modules that fork-servers may preload.
    interpreter: the path of the interpreter; empty for our own.
    """

    name: str
    label: str
    versions: dict[str, str]
    modules: list[str]
    reads: list[str]
    folders: list[str]
    preload: list[str]
    interpreter: str = ""

    @property
    def is_default(self) -> bool:
        """Whether it is the default environment."""
        return self.name == DEFAULT


def environments_folder() -> Path:
    """Return the folder of named environments, in ``$XDG_DATA_HOME`` or ``~/.local/share``."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(os.path.realpath(base)) / "whetstone" / "environments"


def named_environments() -> list[str]:
    """Return the names of the environments that were created here, sorted."""
    folder = environments_folder()
    return sorted(path.parent.name for path in folder.glob("*/pyvenv.cfg")) if folder.is_dir() else []


def environment_named(name_or_folder: str | os.PathLike[str] | None) -> PackageEnvironment:
    """Return an environment by its name or the folder of a virtual environment; None is the default one.

    Raises UserError for one that does not exist or that programs must not see.
    """
    text = os.fspath(name_or_folder) if name_or_folder is not None else DEFAULT
    if text in (DEFAULT, ""):
        return default_environment()
    if os.sep in text or os.path.isdir(text):
        return _load_folder(Path(text))
    return created_environment(text)


def created_environment(name: str) -> PackageEnvironment:
    """Return an environment by its name, never by its folder. Raises UserError if there is none."""
    if name == DEFAULT:
        return default_environment()
    made = named_environments()
    if name not in made:
        raise UserError(
            f"there is no environment `{name}`{did_you_mean(name, [*made, DEFAULT])}; make it with "
            f"`whetstone judge environment create {name} PACKAGE…`, or give a virtual environment's folder"
        )
    return _load_folder(environments_folder() / name)


@cache
def default_environment() -> PackageEnvironment:
    """Return the environment with the installed packages that competition programs use."""
    preload = [name for name in COMPETITION if _is_installed(name)]
    versions: dict[str, str] = {}
    modules: set[str] = set()
    reads: dict[str, None] = {}
    folders: dict[str, None] = {}
    for found in with_requirements(preload):
        paths = [os.path.join(found.folder, name) for name in found.names]
        folders[found.folder] = None
        # Links are not shown to programs, because they can lead to files outside of the environment.
        reads.update((path, None) for path in paths if os.path.exists(path) and not os.path.islink(path))
        modules.update(filter(None, map(_module_name, found.names)))
        versions[found.name] = found.version
    label = _label(DEFAULT, versions)
    return PackageEnvironment(DEFAULT, label, versions, sorted(modules), list(reads), list(folders), preload)


def _label(name: str, versions: dict[str, str], python: Python | None = None) -> str:
    lines = "".join(f"{package}=={versions[package]}\n" for package in sorted(versions))
    version = python.version if python else OWN
    digest = hashlib.sha256(f"Python {version}\n{lines}".encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{name}:python{version}:{digest}" if python else f"{name}:{digest}"


def _is_installed(package: str) -> bool:
    """Return whether a package is installed in Whetstone's environment. Does not import it."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return False
    # A package without __init__.py may be any folder with that name, such as one in the current directory.
    return spec is not None and bool(spec.origin) and Path(spec.origin or "").name == "__init__.py"


def _module_name(entry: str) -> str:
    """Return the module of an entry of a search path's folder; empty if it is no module."""
    name = _MODULE_ENDING.sub("", entry)
    return name if name.isidentifier() else ""


def _load_folder(folder: Path) -> PackageEnvironment:
    """Return the environment of a virtual environment.

    Raises UserError if it is none, or contains Whetstone.
    """
    site, python = _packages_folder(folder)
    found = installed_in(str(site))
    versions = {each.name: each.version for each in found}
    own_files = Path(os.path.realpath(__file__)).parents[2]
    contains_own_files = (site / _OWN_PACKAGE).exists() or site in own_files.parents
    if contains_own_files or any(normal_name(name) == DISTRIBUTION for name in versions):
        raise UserError(
            f"{folder}: Whetstone is installed there, and programs must not see its problem sets with their "
            "answers; give a virtual environment without it, such as one created with "
            "`whetstone judge environment create NAME PACKAGE…`"
        )
    entries = [entry.name for entry in os.scandir(site) if not entry.is_symlink()]
    modules = sorted({module for entry in entries if (module := _module_name(entry))} - {"__pycache__"})
    name = Path(os.path.realpath(folder)).name
    place = [str(site)]
    preload = _modules_to_preload(found, modules)
    label = _label(name, versions, python)
    interpreter = python.path if python else ""
    return PackageEnvironment(name, label, versions, modules, place, place, preload, interpreter)


def _packages_folder(folder: Path) -> tuple[Path, Python | None]:
    """Return the folder of packages of a virtual environment, and its interpreter; None for our own.

    Raises UserError.
    """
    if not (folder / "pyvenv.cfg").is_file():
        raise UserError(
            f"{folder}: not a virtual environment; make one with `python{OWN} -m venv {folder}`, or with "
            "`whetstone judge environment create NAME PACKAGE…`"
        )
    sites = {
        site.parent.name.removeprefix("python"): site for site in folder.glob("lib/python*/site-packages")
    }
    if not sites:
        raise UserError(
            f"{folder}: has no folder of packages; make it with `python{OWN} -m venv` (or: whetstone judge "
            "environment --help)"
        )
    series = OWN if OWN in sites else max(sites)
    python = None if series == OWN else python_of(folder, series)
    return Path(os.path.realpath(sites[series])), python


def _modules_to_preload(found: list[InstalledDistribution], modules: list[str]) -> list[str]:
    """Return the modules that programs probably import: the competition packages and packages installed on
    purpose.

    A distribution was installed on purpose if no other one requires it.
    """
    needed = {name for each in found for name in each.requires} | _INSTALLERS
    installed_on_purpose = [each for each in found if normal_name(each.name) not in needed]
    wanted = [*COMPETITION, *(module for each in installed_on_purpose for module in _modules_of(each))]
    return [name for name in dict.fromkeys(wanted) if name in modules][:_MAX_PRELOADED]


def _modules_of(found: InstalledDistribution) -> list[str]:
    """Return the top-level modules of a distribution that have its name, or all of them."""
    names = {_module_name(name) for name in found.names} - {""}
    public = sorted(name for name in names if not name.startswith("_"))
    same = [name for name in public if normal_name(name) == normal_name(found.name)]
    return same or public


def check_reachable(environment: PackageEnvironment, isolation: str) -> None:
    """Raise UserError if a tier that gives up root cannot reach an environment that only root can."""
    if environment.is_default or isolation != "userns" or os.geteuid() != 0:
        return
    for folder in environment.folders:
        closed = [
            place for place in (Path(folder), *Path(folder).parents) if not place.stat().st_mode & 0o001
        ]
        if closed:
            raise UserError(
                f"the environment `{environment.name}` is inside {closed[-1]}, which only its owner may "
                f"enter, and isolation tier `{isolation}` gives up root: move it elsewhere (XDG_DATA_HOME)"
            )
