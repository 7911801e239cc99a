"""Find compilers and runtimes on this machine, their versions, and the files that they must read.

Finding them runs no tool, so each worker does it itself. Versions require running the tools, so only
``whetstone doctor`` reads them.
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

from whetstone.core.errors import UserError
from whetstone.judge.environments.environment import PackageEnvironment, default_environment
from whetstone.judge.languages.language import Language
from whetstone.judge.languages.table import LANGUAGES, PYTHON, PYTHON_SCIENTIFIC, language_named
from whetstone.sandbox import Tier

_VERSION_TIMEOUT_S = 30
_RUSTUP_TIMEOUT_S = 30
# Folders that contain several programs. A program never gets access to such a folder as a whole.
_SHARED_PREFIXES = ("/", "/usr", "/usr/local", "/opt", "/home", "/root", "/snap")


@dataclass(frozen=True)
class Toolchain:
    """The tools of a language on this machine. ``identity`` changes if any of them changes."""

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


def missing_tools(language: Language, environment: PackageEnvironment | None = None) -> list[str]:
    """Return the missing tools of a language, or the missing package of ``environment``; empty if it can
    be used."""
    if language.name == PYTHON_SCIENTIFIC:
        return [] if "numpy" in (environment or default_environment()).modules else ["numpy"]
    return [name for name in language.tools if _find_executable(name) is None]


def require(language: Language, whose: str, environment: PackageEnvironment | None = None) -> None:
    """Raise UserError unless ``language`` can be used.

    The message names what is missing and what is available.
    """
    if missing := missing_tools(language, environment):
        here = [name for name, other in LANGUAGES.items() if not missing_tools(other, environment)]
        raise UserError(
            f"{whose} is in `{language.name}`, for which this machine has no {', no '.join(missing)}: "
            f"install {language.install}. Available languages: {', '.join(here)}"
        )


def check_tier(language: Language, isolation: str, whose: str) -> None:
    """Raise UserError if a tier cannot run a language or cannot reach its tools."""
    if language.needs_namespaces and isolation == Tier.RESTRICTED.label:
        raise UserError(
            f"{whose} is in `{language.name}`, which isolation tier `{isolation}` cannot run: "
            f"{language.needs_namespaces}. Allow user namespaces on this machine, or run as root."
        )
    # The tier `userns` gives up root before it opens the tools. The tier `restricted` does so for compilers,
    # to limit the number of their processes.
    sheds_root = isolation == Tier.USERNS.label or (isolation == Tier.RESTRICTED.label and language.compile)
    if sheds_root and os.geteuid() == 0:
        for path in filter(None, map(_find_executable, language.tools)):
            if not _is_executable_by_all(path):
                raise UserError(
                    f"{whose} is in `{language.name}`, but isolation tier `{isolation}` gives up root, and "
                    f"only root can reach {path}. Install {language.install} for all users."
                )


def runs_here(name: str, isolation: str = "") -> bool:
    """Return whether programs in the language called ``name`` can be judged on this machine (in this
    tier)."""
    try:
        language = language_named(name, "the program")
        require(language, "the program")
        check_tier(language, isolation, "the program")
    except UserError:
        return False
    return True


@cache
def find_toolchain(name: str) -> Toolchain:
    """Return the tools of the language ``name``. Raises UserError if one is missing."""
    language = LANGUAGES[name]
    require(language, "the program")
    tools = {tool: path for tool in language.tools if (path := _find_executable(tool))}
    stats = [os.stat(path) for path in tools.values()]
    identity = ";".join(
        f"{path}:{stat.st_size}:{stat.st_mtime_ns}" for path, stat in zip(tools.values(), stats, strict=True)
    )
    reads = [path for pattern in language.reads for path in sorted(glob.glob(pattern))]
    reads += [_installation_path(path) for path in tools.values()]
    home = str(Path(next(iter(tools.values()), "/")).parent.parent)
    return Toolchain(language, tools, home, identity, tuple(dict.fromkeys(reads)))


def toolchain_paths() -> tuple[str, ...]:
    """Return the paths that all languages of this machine read, outside of the system's libraries and
    programs."""
    names = [name for name, language in LANGUAGES.items() if language.run and not missing_tools(language)]
    paths = [path for name in names for path in find_toolchain(name).reads]
    return tuple(path for path in dict.fromkeys(paths) if os.path.exists(path))


def _is_executable_by_all(path: str) -> bool:
    """Return whether all users can reach a file and execute it."""
    file = Path(path)
    return all(place.stat().st_mode & S_IXOTH for place in (file, *file.parents))


@cache
def _find_executable(name: str) -> str | None:
    """Return the real file of a program on PATH. For a proxy of rustup, it is the tool of the active
    toolchain."""
    found = shutil.which(name)
    if found is None:
        return None
    real = os.path.realpath(found)
    if os.path.basename(real) == "rustup":
        return _resolve_rustup(real, name)
    # A compiler finds its parts relative to its path. So the folder is resolved, but not the name.
    folder = os.path.realpath(os.path.dirname(found))
    in_place = os.path.join(folder, os.path.basename(found))
    return in_place if os.path.dirname(real) == folder else real


def _resolve_rustup(rustup: str, name: str) -> str | None:
    try:
        result = subprocess.run(
            [rustup, "which", name], capture_output=True, timeout=_RUSTUP_TIMEOUT_S, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    path = result.stdout.strip()
    return path if os.access(path, os.X_OK) else None


def _installation_path(path: str) -> str:
    """Return the folder that contains only a tool, or the path of the tool if the folder has other
    contents."""
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
    """Return all languages of the judge with their version, or with what to install."""
    return [_availability(language) for language in LANGUAGES.values()]


def found_languages(isolation: str) -> list[Availability]:
    """Return all languages with the path of their tool instead of its version. No tool is run.

    A language that the tier ``isolation`` cannot run is not available.
    """
    return [_availability_with_path(language, isolation) for language in LANGUAGES.values()]


def _availability_with_path(language: Language, isolation: str) -> Availability:
    if not language.tools or missing_tools(language):
        return _availability(language)
    try:
        check_tier(language, isolation, "a program")
    except UserError as error:
        return Availability(language.name, False, str(error))
    return Availability(language.name, True, find_toolchain(language.name).tools[language.tools[0]])


def _availability(language: Language) -> Availability:
    if missing := missing_tools(language):
        return Availability(language.name, False, f"no {', no '.join(missing)}: install {language.install}")
    if language.name == PYTHON:
        return Availability(PYTHON, True, platform.python_version())
    if language.name == PYTHON_SCIENTIFIC:
        return Availability(language.name, True, ", ".join(default_environment().preload))
    tools = find_toolchain(language.name).tools
    return Availability(language.name, True, _version([tools[language.tools[0]], *language.version]))


def _version(command: list[str]) -> str:
    try:
        result = subprocess.run(
            command, capture_output=True, timeout=_VERSION_TIMEOUT_S, text=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"found, but its version is unknown: {error}"
    return next((line for line in (result.stdout + result.stderr).splitlines() if line.strip()), "?").strip()
