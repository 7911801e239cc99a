"""An environment: the packages that Python programs may import, and nothing else that is installed here.

The default one is what lies beside Whetstone of the packages that competition programs use, each with what
it requires: beside them lie other packages, and problem sets with their answers, so these alone are shown. A
virtual environment of its own is shown whole, and must not hold Whetstone. Nothing in it is run to find it:
``.pth`` files, editable installs and links that lead out of it have no meaning to programs.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from whetstone.errors import UserError, did_you_mean
from whetstone.judge.environments.installed import Installed, installed_in, normal_name, with_requirements

DEFAULT = "default"
COMPETITION = ("numpy", "pandas", "scipy", "sympy", "networkx", "sortedcontainers")
"""What competition programs use: the extra ``programs`` of this distribution."""
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "uv"})
_OURS = "whetstone"
_MOST_PRELOADED = 8
_MODULE_ENDINGS = (".py", *sorted(EXTENSION_SUFFIXES, key=len, reverse=True))
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_DIGEST_DIGITS = 10


class Environment(Struct, frozen=True):
    """``label`` is its name and a digest of the versions of Python and the packages: what a judgement says.

    ``versions`` are those of its distributions by name, ``modules`` what these have at the top. ``reads`` are
    the files and folders that programs are shown, ``folders`` what is put in their search path, ``preload``
    the modules that fork-servers may load ahead.
    """

    name: str
    label: str
    versions: dict[str, str]
    modules: list[str]
    reads: list[str]
    folders: list[str]
    preload: list[str]

    @property
    def is_default(self) -> bool:
        """Whether it is what lies beside Whetstone."""
        return self.name == DEFAULT


def environments_folder() -> Path:
    """Where environments with a name are kept: ``$XDG_DATA_HOME`` or ``~/.local/share``."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(os.path.realpath(base)) / "whetstone" / "environments"


def named_environments() -> list[str]:
    """The names of those that were made here, sorted."""
    folder = environments_folder()
    return sorted(path.parent.name for path in folder.glob("*/pyvenv.cfg")) if folder.is_dir() else []


def environment_named(asked: str | os.PathLike[str] | None) -> Environment:
    """The environment that ``asked`` says: a name, the folder of a virtual environment, or None: the default.

    Raises UserError for one that is not there or cannot be shown to programs.
    """
    text = os.fspath(asked) if asked is not None else DEFAULT
    if text in (DEFAULT, ""):
        return default_environment()
    if os.sep in text or os.path.isdir(text):
        return _of_folder(Path(text))
    made = named_environments()
    if text not in made:
        raise UserError(
            f"there is no environment `{text}`{did_you_mean(text, [*made, DEFAULT])}; make it with "
            f"`whetstone judge environment create {text} PACKAGE…`, or give a virtual environment's folder"
        )
    return _of_folder(environments_folder() / text)


@cache
def default_environment() -> Environment:
    """What lies beside Whetstone of the packages that competition programs use."""
    preload = [name for name in COMPETITION if _is_here(name)]
    versions: dict[str, str] = {}
    modules: set[str] = set()
    reads: dict[str, None] = {}
    folders: dict[str, None] = {}
    for found in with_requirements(preload):
        paths = [os.path.join(found.folder, name) for name in found.names]
        folders[found.folder] = None
        reads.update((path, None) for path in paths if os.path.exists(path) and not os.path.islink(path))
        modules.update(filter(None, map(_module, found.names)))
        versions[found.name] = found.version
    label = _label(DEFAULT, versions)
    return Environment(DEFAULT, label, versions, sorted(modules), list(reads), list(folders), preload)


def _label(name: str, versions: dict[str, str]) -> str:
    lines = "".join(f"{package}=={versions[package]}\n" for package in sorted(versions))
    digest = hashlib.sha256(f"Python {_PYTHON}\n{lines}".encode()).hexdigest()
    return f"{name}:{digest[:_DIGEST_DIGITS]}"


def _is_here(package: str) -> bool:
    """Whether a package is installed beside Whetstone; it is not imported."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return False
    return spec is not None and bool(spec.origin) and Path(spec.origin or "").name == "__init__.py"


def _module(entry: str) -> str:
    """The module that a name in a search path's folder stands for; empty for what is none."""
    for ending in _MODULE_ENDINGS:
        entry = entry.removesuffix(ending)
    return entry if entry.isidentifier() else ""


def _of_folder(folder: Path) -> Environment:
    """A virtual environment. Raises UserError for what is none, or not for programs to see."""
    site = packages_folder(folder)
    found = installed_in(str(site))
    versions = {each.name: each.version for each in found}
    if any(normal_name(name) == "whetstone-rl" for name in versions) or _holds_us(site):
        raise UserError(
            f"{folder}: Whetstone itself is installed there, and its problem sets with their answers are not "
            "for programs to see; give a virtual environment without it, such as one made by "
            "`whetstone judge environment create NAME PACKAGE…`"
        )
    entries = [entry.name for entry in os.scandir(site) if not entry.is_symlink()]
    modules = sorted({module for entry in entries if (module := _module(entry))} - {"__pycache__"})
    name = Path(os.path.realpath(folder)).name
    place = [str(site)]
    return Environment(
        name, _label(name, versions), versions, modules, place, place, _to_preload(found, modules)
    )


def packages_folder(folder: Path) -> Path:
    """Where a virtual environment has its packages. Raises UserError, also for another version of Python."""
    if not (folder / "pyvenv.cfg").is_file():
        raise UserError(
            f"{folder}: not a virtual environment; make one with `python{_PYTHON} -m venv {folder}`, or with "
            "`whetstone judge environment create NAME PACKAGE…`"
        )
    site = folder / "lib" / f"python{_PYTHON}" / "site-packages"
    if not site.is_dir():
        others = [path.parent.name for path in (folder / "lib").glob("python*/site-packages")]
        raise UserError(
            f"{folder}: made for {', '.join(others) or 'another Python'}, but programs run in Python "
            f"{_PYTHON}; make it with `python{_PYTHON} -m venv` (or: whetstone judge environment --help)"
        )
    return Path(os.path.realpath(site))


def _holds_us(site: Path) -> bool:
    """Whether our own files lie there, or beneath it."""
    ours = Path(os.path.realpath(__file__)).parents[2]
    return (site / _OURS).exists() or site in ours.parents


def _to_preload(found: list[Installed], modules: list[str]) -> list[str]:
    """The modules that programs are most likely to import: the competition packages, and each distribution
    that no other requires, because somebody installed it on purpose."""
    needed = {name for each in found for name in each.requires} | _INSTALLERS
    purposes = [each for each in found if normal_name(each.name) not in needed]
    wanted = [*COMPETITION, *(module for each in purposes for module in _modules_of(each))]
    return [name for name in dict.fromkeys(wanted) if name in modules][:_MOST_PRELOADED]


def _modules_of(found: Installed) -> list[str]:
    """The top modules of a distribution that have its name, or all of them."""
    names = {_module(name) for name in found.names} - {""}
    public = sorted(name for name in names if not name.startswith("_"))
    same = [name for name in public if normal_name(name) == normal_name(found.name)]
    return same or public


def check_reachable(environment: Environment, isolation: str) -> None:
    """Raise UserError where a tier that gives up root cannot reach what only root can."""
    if environment.is_default or isolation != "userns" or os.geteuid() != 0:
        return
    for folder in environment.folders:
        closed = [
            place for place in (Path(folder), *Path(folder).parents) if not place.stat().st_mode & 0o001
        ]
        if closed:
            raise UserError(
                f"the environment `{environment.name}` lies beneath {closed[-1]}, which only its owner may "
                f"enter, and isolation tier `{isolation}` gives up root: put it elsewhere (XDG_DATA_HOME)"
            )
