"""What is read of installed distributions: the headers of METADATA, and the first parts of RECORD's paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from whetstone.judge.environments.installed import InstalledDistribution, extras_of, installed_in, version_of

METADATA = """\
Metadata-Version: 2.1
Name: Shown_Package
Version: 1.0
Requires-Dist: numpy >=1.26
Requires-Dist: Some.Other[fast] ; python_version > "3"
Requires-Dist: torch>=2 ; extra == 'train'
Requires-Dist: ray ; python_version > "3" and extra == "ray"

Name: not a header
Requires-Dist: nor-this
"""
RECORD = """\
shown/__init__.py,sha256=abc,10
"shown/with, comma.py",sha256=abc,10
shown_single.py,sha256=abc,10
../../../bin/shown,sha256=abc,10
/etc/shown.conf,sha256=abc,10
__pycache__/shown_single.cpython-311.pyc,,
Shown_Package-1.0.dist-info/RECORD,,
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    info = tmp_path / "Shown_Package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "RECORD").write_text(RECORD)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_distribution_is_read_from_its_headers_and_its_record(site: Path) -> None:
    names = ["Shown_Package-1.0.dist-info", "shown", "shown_single.py"]
    folder = str(site.resolve())
    expected = InstalledDistribution("Shown_Package", "1.0", folder, ["numpy", "some-other"], names)
    assert installed_in(str(site)) == [expected]


def test_an_egg_is_read_as_well(tmp_path: Path) -> None:
    egg = tmp_path / "shown.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Name: shown\nVersion: 2\n")
    (egg / "requires.txt").write_text("numpy\n\n[fast]\ntorch\n")
    (egg / "SOURCES.txt").write_text("shown/__init__.py\n")
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "__init__.py").touch()  # from Python 3.12 on, only files that exist are listed
    [found] = installed_in(str(tmp_path))
    assert (found.name, found.version, found.requires, found.names) == ("shown", "2", ["numpy"], ["shown"])


@pytest.mark.usefixtures("site")
def test_the_requirements_of_an_extra_are_found_by_its_marker() -> None:
    assert extras_of("shown-package") == {"train": ["torch"], "ray": ["ray"]}
    assert version_of("shown-package") == "1.0"
    assert extras_of("is-not-installed-here") == {}
    assert version_of("is-not-installed-here") is None
