"""Virtual environments for the judge's tests, put together by hand: no pip, no network."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


@contextmanager
def environment_folder(packages: Mapping[str, str], *, python: str = PYTHON) -> Generator[Path]:
    """The folder of one whose packages are these: the source of a package by its name."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # a tier that sheds root has to reach it
        folder = Path(name) / "venv"
        site = folder / "lib" / python / "site-packages"
        site.mkdir(parents=True)
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        for package, source in packages.items():
            (site / package).mkdir()
            (site / package / "__init__.py").write_text(source)
            about = site / f"{package}-1.0.dist-info"
            about.mkdir()
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            (about / "RECORD").write_text(f"{package}/__init__.py,,\n{about.name}/METADATA,,\n")
        yield folder


def packages_of(folder: Path) -> Path:
    """Where its packages lie."""
    return folder / "lib" / PYTHON / "site-packages"
