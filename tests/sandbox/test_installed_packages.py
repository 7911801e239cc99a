"""Installed packages are not for programs to read: problem sets and their answers may be among them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from whetstone.sandbox import RunResult
from whetstone.sandbox.zygote.packages import without_packages

READ_ALL = """
import glob, os
library = os.path.dirname(os.__file__)
folders = [library + "/site-packages"]
for top in ("/usr/lib", "/usr/local/lib", os.path.dirname(library)):
    folders += glob.glob(top + "/python*/*-packages")
for folder in folders:
    for path in glob.glob(folder + "/*") + glob.glob(folder + "/*/*"):
        try:
            with open(path, "rb") as file:
                file.read(1)
            print(path)
        except OSError:
            pass
"""
USE_THE_LIBRARY = """
import colorsys, ctypes, decimal, lzma, sqlite3, tomllib, xml.dom.minidom, zoneinfo
print(zoneinfo.ZoneInfo("UTC"), ctypes.CDLL(None).getpid() > 0, open(colorsys.__file__).read(1) != "")
"""


def test_no_file_of_an_installed_package_can_be_read(run: Callable[..., RunResult]) -> None:
    result = run(READ_ALL)
    assert (result.exit_code, result.stdout) == (0, b""), result


def test_the_standard_library_is_there(run: Callable[..., RunResult]) -> None:
    result = run(USE_THE_LIBRARY)
    assert result.stdout == b"UTC True True\n", result


def test_a_folder_without_its_packages(tmp_path: Path) -> None:
    for file in ("libx.so", "python3.11/os.py", "python3.11/site-packages/p/data", "perl/site-packages/q"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "link").symlink_to(tmp_path / "python3.11" / "site-packages")
    readable, listed = without_packages(str(tmp_path))
    assert [os.path.relpath(path, tmp_path) for path in readable] == ["libx.so", "perl", "python3.11/os.py"]
    assert [os.path.relpath(path, tmp_path) for path in listed] == [".", "python3.11"]
    assert without_packages(str(tmp_path / "perl")) == ([], [str(tmp_path / "perl")])
    assert without_packages(str(tmp_path / "python3.11" / "site-packages" / "p"))[1] == []
