"""Environments with a name: making them with ``venv`` and ``pip``, listing and removing them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from whetstone.errors import UserError, did_you_mean
from whetstone.judge.environments.environment import (
    DEFAULT,
    Environment,
    environment_named,
    environments_folder,
    named_environments,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_INSTALL_TIMEOUT_S = 3600
_SAID_LINES = 3
# What pip says, in the order of looking, and what it means for a person.
_FAILURES = (
    (
        r"Failed to establish a new connection|Temporary failure in name resolution|Network is unreachable"
        r"|ProxyError|ConnectTimeout|Read timed out|Connection refused",
        "pip reached no package index: connect this machine, or say where packages are (pip config set "
        "global.index-url URL, or PIP_FIND_LINKS=FOLDER)",
    ),
    (
        r"Requires-Python|requires a different Python",
        "no version of a package is for Python {python}: ask for an older one (PACKAGE==VERSION), or run "
        "Whetstone with another Python",
    ),
    (
        r"No matching distribution found|Invalid requirement",
        "a package is not known by that name or version (the module's name may be another one: cv2 is "
        "opencv-python-headless)",
    ),
    (
        r"subprocess-exited-with-error|metadata-generation-failed|Failed to build|Getting requirements",
        "a package has no wheel for Python {python} here, and does not build: ask for another version",
    ),
)


def create_environment(name: str, packages: Sequence[str]) -> Environment:
    """Make a virtual environment called ``name`` with ``packages`` (as pip names them) in it.

    It has the Python that programs run in. Nothing is left of one that failed. Raises UserError that names
    the way out.
    """
    if not _NAME.fullmatch(name) or name == DEFAULT:
        raise UserError(f"`{name}` is no name for an environment: give letters, digits, dots and dashes")
    if not packages:
        raise UserError("name the packages to install, such as `numpy` or `scipy==1.17.1`")
    if options := [package for package in packages if package.startswith("-")]:
        raise UserError(f"`{options[0]}` is no package; options of pip go into its configuration")
    folder = environments_folder() / name
    if folder.exists():
        raise UserError(
            f"there is an environment `{name}` (see: whetstone judge environment show {name}); give another "
            f"name, or remove it first: whetstone judge environment remove {name}"
        )
    if importlib.util.find_spec("pip") is None:
        raise UserError(
            f"there is no pip beside Whetstone, which installs packages: `{sys.executable} -m ensurepip`, or "
            "`uv pip install pip`; or make a virtual environment yourself, and give its folder"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        venv.create(folder, with_pip=False, symlinks=True)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(f"{folder}: cannot be made: {error.strerror or error} (see XDG_DATA_HOME)") from None
    try:
        _install(folder, packages)
        return environment_named(name)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _install(folder: Path, packages: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    options = ["install", "--no-input", "--disable-pip-version-check", "--quiet"]
    try:
        done = subprocess.run(
            [*command, *options, *packages],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_INSTALL_TIMEOUT_S,
            umask=0o022,  # programs run as another user, who has to read them
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"pip has not ended within {_INSTALL_TIMEOUT_S} s; see what it waits for") from None
    if done.returncode:
        raise UserError(_explained(done.stderr))


def _explained(said: str) -> str:
    """What pip's failure means, and what it said of it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:")]
    last = " / ".join((errors or lines)[-_SAID_LINES:])
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    for pattern, meaning in _FAILURES:
        if re.search(pattern, said):
            return f"{meaning.replace('{python}', python)}. pip said: {last}"
    return f"pip could not install them. It said: {last}"


def remove_environment(name: str) -> None:
    """Remove an environment that ``create_environment`` made. Raises UserError."""
    made = named_environments()
    if name not in made:
        raise UserError(f"there is no environment `{name}`{did_you_mean(name, made)}")
    shutil.rmtree(environments_folder() / name)
