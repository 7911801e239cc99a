"""Environments for other versions of Python, as far as this machine has these."""

from __future__ import annotations

from pathlib import Path

import pytest

from whetstone.core.errors import UserError
from whetstone.judge.environments.pythons import NEWEST, OLDEST, OWN, Python, find_python

SERIES = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1) if f"3.{minor}" != OWN]


def other_python(series: str) -> Python:
    """Return the interpreter of a version, or skip the test with the reason."""
    try:
        return find_python(series)
    except UserError as error:
        pytest.skip(str(error))


def empty_environment(python: Python, folder: Path, *, home: Path | None = None) -> Path:
    """Make a virtual environment without packages, whose interpreter is in ``home``."""
    (folder / "lib" / f"python{python.series}" / "site-packages").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {home or Path(python.path).parent}\n")
    return folder
