"""The compilers and runtimes of this machine: where they are, which version, and what they must read.

Finding them costs no run of theirs, so that every worker may do it for itself; their versions, which do,
are asked for by ``whetstone doctor`` alone.
"""

from __future__ import annotations

import glob
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from stat import S_IXOTH

from whetstone.errors import UserError
from whetstone.judge.environments.environment import Environment, default_environment
from whetstone.judge.languages.language import Language
from whetstone.judge.languages.table import LANGUAGES, PYTHON, PYTHON_SCIENTIFIC, language_named
from whetstone.sandbox import Tier

_VERSION_TIMEOUT_S = 30
_RUSTUP_TIMEOUT_S = 30
# Folders that hold more than one program's files: never shown to a program as a whole.
_SHARED_PREFIXES = ("/", "/usr", "/usr/local", "/opt", "/home", "/root", "/snap")


@dataclass(frozen=True)
class Toolchain:
    """A language's tools as they were found. ``identity`` changes when any of them does."""

    language: Language
    tools: dict[str, str]
    home: str
    identity: str
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Availability:
    """One line of ``whetstone doctor``: a version, or what to install."""

    language: str
    available: bool
    detail: str


def missing_tools(language: Language, environment: Environment | None = None) -> list[str]:
    """What is not here (or not in ``environment``) of what a language needs; empty when it can be used."""
    if language.name == PYTHON_SCIENTIFIC:
        return [] if "numpy" in (environment or default_environment()).modules else ["numpy"]
    return [name for name in language.tools if _executable(name) is None]


def require(language: Language, whose: str, environment: Environment | None = None) -> None:
    """Raise UserError, naming what is missing and what is here, unless ``language`` can be used."""
    if missing := missing_tools(language, environment):
        here = [name for name, other in LANGUAGES.items() if not missing_tools(other, environment)]
        raise UserError(
            f"{whose} is in `{language.name}`, for which this machine has no {', no '.join(missing)}: "
            f"install {language.install}. Languages here: {', '.join(here)}"
        )


def check_tier(language: Language, isolation: str, whose: str) -> None:
    """Raise UserError where a tier cannot run a language, or reach its tools."""
    if language.needs_namespaces and isolation == Tier.RESTRICTED.label:
        raise UserError(
            f"{whose} is in `{language.name}`, which isolation tier `{isolation}` cannot run: "
            f"{language.needs_namespaces}. Allow user namespaces on this machine, or run as root."
        )
    # One sheds root before it looks for them; the other for compilers, whose number it can limit then.
    sheds_root = isolation == Tier.USERNS.label or (isolation == Tier.RESTRICTED.label and language.compile)
    if sheds_root and os.geteuid() == 0:
        for path in filter(None, map(_executable, language.tools)):
            if not _open_to_all(path):
                raise UserError(
                    f"{whose} is in `{language.name}`, but isolation tier `{isolation}` gives up root, and "
                    f"only root can reach {path}. Install {language.install} for all users."
                )


def runs_here(name: str, isolation: str = "") -> bool:
    """Whether programs in the language called ``name`` can be judged on this machine (in this tier)."""
    try:
        language = language_named(name, "the program")
        require(language, "the program")
        check_tier(language, isolation, "the program")
    except UserError:
        return False
    return True


@cache
def toolchain(name: str) -> Toolchain:
    """The tools of the language ``name``. Raises UserError when one is missing."""
    language = LANGUAGES[name]
    require(language, "the program")
    tools = {tool: path for tool in language.tools if (path := _executable(tool))}
    found = [os.stat(path) for path in tools.values()]
    identity = ";".join(
        f"{path}:{stat.st_size}:{stat.st_mtime_ns}" for path, stat in zip(tools.values(), found, strict=True)
    )
    reads = [path for pattern in language.reads for path in sorted(glob.glob(pattern))]
    reads += [_own_folder(path) for path in tools.values()]
    home = str(Path(next(iter(tools.values()), "/")).parent.parent)
    return Toolchain(language, tools, home, identity, tuple(dict.fromkeys(reads)))


def toolchain_paths() -> tuple[str, ...]:
    """What all languages found here read outside of the system's libraries and programs."""
    names = [name for name, language in LANGUAGES.items() if language.run and not missing_tools(language)]
    paths = [path for name in names for path in toolchain(name).reads]
    return tuple(path for path in dict.fromkeys(paths) if os.path.exists(path))


def _open_to_all(path: str) -> bool:
    """Whether any user can walk to a file and execute it."""
    file = Path(path)
    return all(place.stat().st_mode & S_IXOTH for place in (file, *file.parents))


@cache
def _executable(name: str) -> str | None:
    """The real file of a program on PATH; rustup's stand-ins are asked which toolchain they mean."""
    found = shutil.which(name)
    if found is None:
        return None
    real = os.path.realpath(found)
    if os.path.basename(real) == "rustup":
        return _behind_rustup(real, name)
    # A compiler finds its parts beside the name it was called by: only the folder may be resolved.
    folder = os.path.realpath(os.path.dirname(found))
    in_place = os.path.join(folder, os.path.basename(found))
    return in_place if os.path.dirname(real) == folder else real


def _behind_rustup(rustup: str, name: str) -> str | None:
    try:
        said = subprocess.run(
            [rustup, "which", name], capture_output=True, timeout=_RUSTUP_TIMEOUT_S, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    path = said.stdout.strip()
    return path if os.access(path, os.X_OK) else None


def _own_folder(path: str) -> str:
    """The folder that a tool was installed into, or the file alone where that folder holds other things."""
    real = Path(os.path.realpath(path))
    prefix = real.parent.parent
    home = Path.home()
    shared = (
        str(prefix) in _SHARED_PREFIXES,
        prefix == home,
        prefix in home.parents,
        prefix == home / ".local",
    )
    return str(real) if real.parent.name != "bin" or any(shared) else str(prefix)


def available_languages() -> list[Availability]:
    """Every language of the judge, with its version here, or with what to install."""
    return [_availability(language) for language in LANGUAGES.values()]


def found_languages(isolation: str) -> list[Availability]:
    """The same with the path of the tool in place of its version: no tool is run.

    A language that the tier ``isolation`` cannot run is not available.
    """
    return [_found(language, isolation) for language in LANGUAGES.values()]


def _found(language: Language, isolation: str) -> Availability:
    if not language.tools or missing_tools(language):
        return _availability(language)
    try:
        check_tier(language, isolation, "a program")
    except UserError as error:
        return Availability(language.name, False, str(error))
    return Availability(language.name, True, toolchain(language.name).tools[language.tools[0]])


def _availability(language: Language) -> Availability:
    if missing := missing_tools(language):
        return Availability(language.name, False, f"no {', no '.join(missing)}: install {language.install}")
    if language.name == PYTHON:
        return Availability(PYTHON, True, platform.python_version())
    if language.name == PYTHON_SCIENTIFIC:
        return Availability(language.name, True, ", ".join(default_environment().preload))
    tools = toolchain(language.name).tools
    return Availability(language.name, True, _version([tools[language.tools[0]], *language.version]))


def _version(command: list[str]) -> str:
    try:
        said = subprocess.run(
            command, capture_output=True, timeout=_VERSION_TIMEOUT_S, text=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"found, but does not say its version: {error}"
    return next((line for line in (said.stdout + said.stderr).splitlines() if line.strip()), "?").strip()
