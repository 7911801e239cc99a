"""Create, list and remove named environments, with ``venv`` and ``pip``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.problem import ENVIRONMENT_NAME
from whetstone.judge.environments.environment import (
    DEFAULT,
    PackageEnvironment,
    environment_named,
    environments_folder,
    named_environments,
)
from whetstone.judge.environments.pythons import OWN, Python, find_python

_INSTALL_TIMEOUT_S = 3600
_QUOTED_LINES = 3
_READABLE = 0o022  # programs run as another user, who must be able to read the packages
# Patterns of pip's error messages in the order of the search, and the message for the user.
_FAILURES = (
    (
        r"Failed to establish a new connection|Temporary failure in name resolution|Network is unreachable"
        r"|ProxyError|ConnectTimeout|Read timed out|Connection refused",
        "pip reached no package index: connect this machine, or set another index (pip config set "
        "global.index-url URL, or PIP_FIND_LINKS=FOLDER)",
    ),
    (
        r"Requires-Python|requires a different Python",
        "no version of a package supports Python {python}: request an older one (PACKAGE==VERSION), or "
        "another Python (--python)",
    ),
    (
        r"No matching distribution found|Invalid requirement",
        "a package with that name or version does not exist (modules can have other names: cv2 is "
        "opencv-python-headless)",
    ),
    (
        r"subprocess-exited-with-error|metadata-generation-failed|Failed to build|Getting requirements",
        "a package has no wheel for Python {python} here, and cannot be built: request another version",
    ),
)


def create_environment(name: str, packages: Sequence[str], python: str = "") -> PackageEnvironment:
    """Create a virtual environment called ``name`` with ``packages`` (as pip names them).

    ``python``: the version of Python, such as ``3.12``, or the path of an interpreter; empty for our own
    version. If it fails, nothing is left. Raises UserError with a remedy.
    """
    if not re.fullmatch(ENVIRONMENT_NAME, name) or name == DEFAULT:
        raise UserError(
            f"`{name}` is not a valid name for an environment: use letters, digits, dots, dashes, underscores"
        )
    if not packages and not python:
        raise UserError("name the packages to install, such as `numpy` or `scipy==1.17.1`")
    if options := [package for package in packages if package.startswith("-")]:
        raise UserError(f"`{options[0]}` is not a package; set options of pip in its configuration")
    folder = environments_folder() / name
    if folder.exists():
        raise UserError(
            f"there is an environment `{name}` (see: whetstone judge environment show {name}); give another "
            f"name, or remove it first: whetstone judge environment remove {name}"
        )
    # `importlib.util.find_spec` would also run the import hook of setuptools, which then assumes that this
    # process is pip. Afterwards setuptools cannot be imported, and torch.compile needs it.
    if packages and PathFinder.find_spec("pip") is None:
        raise UserError(
            f"pip is missing in Whetstone's environment; install it: `{sys.executable} -m ensurepip`, or "
            "`uv pip install pip`; or create a virtual environment yourself, and give its folder"
        )
    interpreter = find_python(python or OWN)
    if interpreter.series == OWN and os.sep in python:
        raise UserError(f"{python}: programs of Python {OWN} run in Whetstone's own; leave --python out")
    try:
        _make_folder(folder, interpreter)
        if packages:
            _install(folder, packages, interpreter)
        return environment_named(name)
    # An interrupted installation must leave no incomplete environment, so this includes KeyboardInterrupt.
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _make_folder(folder: Path, interpreter: Python) -> None:
    command = [interpreter.path, "-I", "-m", "venv", "--without-pip", "--symlinks", str(folder)]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, capture_output=True, text=True, errors="replace", check=True, umask=_READABLE)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be created: {error.strerror or error} (see XDG_DATA_HOME)"
        ) from None
    except subprocess.CalledProcessError as error:
        last = str(error.stderr).strip().rpartition("\n")[2]
        raise UserError(
            f"{folder}: {interpreter.path} cannot create it: {last} (see XDG_DATA_HOME)"
        ) from None


def _install(folder: Path, packages: Sequence[str], interpreter: Python) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    options = ["install", "--no-input", "--disable-pip-version-check", "--quiet"]
    try:
        result = subprocess.run(
            [*command, *options, *packages],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_INSTALL_TIMEOUT_S,
            umask=_READABLE,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"pip has not ended within {_INSTALL_TIMEOUT_S} s; run it yourself to see what it waits for"
        ) from None
    if result.returncode:
        raise UserError(_explain_failure(result.stderr, interpreter.series))


def _explain_failure(output: str, python: str) -> str:
    """Return the cause of a failure of pip, with the last lines of its output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:")]
    last = " / ".join((errors or lines)[-_QUOTED_LINES:])
    for pattern, meaning in _FAILURES:
        if re.search(pattern, output):
            return f"{meaning.replace('{python}', python)}. pip said: {last}"
    return f"pip could not install them. It said: {last}"


def remove_environment(name: str) -> None:
    """Remove an environment that ``create_environment`` created. Raises UserError."""
    names = named_environments()
    if name not in names:
        raise UserError(f"there is no environment `{name}`{did_you_mean(name, names)}")
    shutil.rmtree(environments_folder() / name)
