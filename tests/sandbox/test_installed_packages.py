"""Installed packages are not for programs to read: problem sets and their answers may be among them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.beside import data_beside
from whetstone.sandbox import Profile, RunLimits, RunResult, Sandbox, SandboxJob, Tier
from whetstone.sandbox.zygote.packages import without_packages

DATA = data_beside(__file__)

READ_ALL = DATA["read_all"]
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


PROGRAM = b"""
import shown
print(shown.VALUE)
try:
    import beside
except (ImportError, OSError):
    print("hidden")
"""


@pytest.mark.parametrize("parent", ["/tmp", "/var/tmp"])
def test_packages_are_found_wherever_they_are_installed(parent: str, tier: Tier) -> None:
    if not os.access(parent, os.W_OK):
        pytest.skip(f"{parent} cannot be written here")
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        os.chmod(folder, 0o755)  # the user of a tier has to reach it
        for name in ("shown", "beside"):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "__init__.py").write_text(f"VALUE = {len(name)}\n")
        profile = Profile("packages", reads=[f"{folder}/shown"], imports=["shown"], import_from=[folder])
        with Sandbox({}, tier=tier, profile=profile) as sandbox:
            result = sandbox.run(SandboxJob("script", PROGRAM, RunLimits(5, 512 << 20, 1 << 16)))
    assert (result.stdout, result.stderr) == (b"5\nhidden\n", b"")
