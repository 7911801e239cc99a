"""Find other CPython interpreters on this machine. Their fork-servers use our files, so the versions are few.

An interpreter is asked for its version by running it without site-packages and environment variables.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.sandbox.zygote.profile import OWN_INTERPRETER

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
OLDEST, NEWEST = (3, 11), (3, 14)
_RANGE = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
_VERSION = re.compile(r"3\.\d{1,2}", re.ASCII)
_FILE = re.compile(r"python(3\.\d{1,2})", re.ASCII)
_ASK = (
    "import json, sys, sysconfig; print(json.dumps({"
    "'path': getattr(sys, '_base_executable', '') or sys.executable, 'kind': sys.implementation.name, "
    "'numbers': sys.version_info[:3], 'has_lock': not sysconfig.get_config_var('Py_GIL_DISABLED')}))"
)
_TIMEOUT_S = 20.0
# Folders of interpreters by pyenv and uv, as an environment variable, its default, and a pattern.
_INSTALLED = (
    ("PYENV_ROOT", "~/.pyenv", "versions/*/bin"),
    ("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python", "*/bin"),
)


class Python(Struct, frozen=True):
    """An interpreter: the ``path`` of its executable, and its version."""

    path: str
    kind: str
    numbers: tuple[int, int, int]
    has_lock: bool

    @property
    def version(self) -> str:
        """The whole version, such as ``3.12.1``."""
        return ".".join(map(str, self.numbers))

    @property
    def series(self) -> str:
        """The first two numbers of the version, by which its packages are separate."""
        return f"{self.numbers[0]}.{self.numbers[1]}"

    @property
    def unsuitable(self) -> str:
        """Why programs cannot run under it; empty if they can."""
        if self.kind != "cpython":
            return f"it is {self.kind}, and programs run in CPython"
        if not self.has_lock:
            return "it is a free-threaded build, and programs run in the usual one"
        is_known = OLDEST <= self.numbers[:2] <= NEWEST
        return "" if is_known else f"it is Python {self.version}, and programs run in Python {_RANGE}"


def find_python(wanted: str) -> Python:
    """Return the interpreter of a version such as ``3.12``, or that at a path.

    Raises UserError, which lists what was found and says how to get the version.
    """
    if os.sep in wanted:
        return python_at(os.path.expanduser(wanted))
    if not _VERSION.fullmatch(wanted) or not OLDEST <= tuple(map(int, wanted.split("."))) <= NEWEST:
        raise UserError(
            f"programs cannot run in Python `{wanted}`: give {_RANGE}, or the path of an interpreter"
        )
    if wanted == OWN:
        return python_at(OWN_INTERPRETER)
    for path in _places(wanted):
        found = _ask(path)
        if isinstance(found, Python) and found.series == wanted and not found.unsuitable:
            return found
    known = ", ".join(f"{each.version} at {each.path}" for each in installed_pythons())
    raise UserError(
        f"there is no Python {wanted} in PATH, nor of uv or pyenv (found: {known}); install it: `uv python "
        f"install {wanted}`, `pyenv install {wanted}`, or the system's package python{wanted}; or give the "
        f"path of an interpreter: --python /path/to/python{wanted}"
    )


def python_at(path: str) -> Python:
    """Return the interpreter at this path. Raises UserError if programs cannot run under it."""
    found = _ask(path)
    if isinstance(found, str):
        raise UserError(f"{path}: does not run as an interpreter of Python: {found}")
    if found.unsuitable:
        raise UserError(f"{path}: {found.unsuitable}; give another interpreter")
    return found


def installed_pythons() -> list[Python]:
    """Return one suitable interpreter of each version that is found here, the oldest version first."""
    found = {OWN: python_at(OWN_INTERPRETER)}
    for path in _places(""):
        asked = _ask(path)
        if isinstance(asked, Python) and not asked.unsuitable:
            found.setdefault(asked.series, asked)
    return sorted(found.values(), key=lambda each: each.numbers)


def _places(series: str) -> Iterator[str]:
    """Yield paths at which interpreters of a version, or of all versions, may be."""
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    for variable, default, pattern in _INSTALLED:
        root = os.environ.get(variable) or os.path.expanduser(default)
        folders += sorted(glob.glob(os.path.join(glob.escape(root), pattern)), reverse=True)
    if series and (uv := shutil.which("uv")):
        yield from _run([uv, "python", "find", "--no-python-downloads", series])[0].splitlines()[:1]
    for folder in folders:
        for file in sorted(glob.glob(os.path.join(glob.escape(folder), f"python{series or '3.*'}"))):
            if _FILE.fullmatch(os.path.basename(file)) and os.access(file, os.X_OK):
                yield file


def _ask(path: str) -> Python | str:
    """Return the interpreter at a path, or why it is none."""
    output, error = _run([path, "-I", "-S", "-c", _ASK])
    try:
        return msgspec.json.decode(output.strip().encode(), type=Python)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return error.strip()[-200:] or "it does not state its version"


def _run(command: list[str]) -> tuple[str, str]:
    """Return the output and the errors of a command."""
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "errors": "replace"}
    try:
        done = subprocess.run(command, timeout=_TIMEOUT_S, **quiet)
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    return done.stdout, done.stderr


def python_of(folder: Path, series: str) -> Python:
    """Return the interpreter of a virtual environment for a version: the one that its configuration names.

    Raises UserError if programs cannot run under it.
    """
    lines = (folder / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
    settings = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    try:
        return python_at(os.path.join(settings.get("home") or "/", f"python{series}"))
    except UserError as error:
        raise UserError(
            f"{folder}: made for Python {series}, whose interpreter is needed: {error}; or create another "
            "environment: whetstone judge environment create NAME --python VERSION PACKAGE…"
        ) from None
