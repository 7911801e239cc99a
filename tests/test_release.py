"""The release: versions, the changelog, and the workflow that checks every commit."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "packages" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_files_name_one_version_and_the_changelog_begins_with_it(release: ModuleType) -> None:
    version = release.common_version(ROOT)
    dated = release.with_date((ROOT / "CHANGELOG.md").read_text(), version, "2030-01-02")
    assert re.search(rf"^## {re.escape(version)} \(20\d\d-\d\d-\d\d\)$", dated, re.MULTILINE)


def test_the_first_version_is_described_by_its_contents() -> None:
    """Nobody had the names and options that development left behind."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = text.split("\n## ")[-1]
    assert not re.search(r"\| old \| new|### Renamed|- Gone:|are removed", first)


def test_versions_that_differ_are_named(release: ModuleType, tmp_path: Path) -> None:
    projects = [str(path.relative_to(ROOT)) for path in ROOT.glob("packages/*/pyproject.toml")]
    for name in ("src/whetstone/__init__.py", "CITATION.cff", *projects):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    citation = tmp_path / "CITATION.cff"
    citation.write_text(re.sub(r"^version: .*$", "version: 9.9.9", citation.read_text(), flags=re.MULTILINE))
    with pytest.raises(release.ReleaseError, match=r"9\.9\.9 in CITATION\.cff"):
        release.common_version(tmp_path)


def test_a_date_is_written_once_and_into_the_first_section_only(release: ModuleType) -> None:
    changelog = "# Changelog\n\n## 1.2.0 (unreleased)\n\nnew\n\n## 1.1.0 (2026-01-01)\n"
    dated = release.with_date(changelog, "1.2.0", "2026-05-06")
    assert dated == changelog.replace("unreleased", "2026-05-06")
    assert release.with_date(dated, "1.2.0", "2026-07-08") == dated
    with pytest.raises(release.ReleaseError, match=r"add the section `## 1.3.0 \(unreleased\)`"):
        release.with_date(changelog, "1.3.0", "2026-05-06")


def test_the_workflow_names_targets_of_the_makefile() -> None:
    jobs: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert {"lint", "fast", "test", "tier", "docs"} <= set(jobs)
    assert {each["tier"] for each in jobs["tier"]["strategy"]["matrix"]["include"]} == {
        "root",
        "userns",
        "restricted",
    }
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, job in jobs.items():
        commands = [step["run"] for step in job["steps"] if "make" in step.get("run", "")]
        assert commands, name
        for command in commands:
            words = re.sub(r"\$\{\{.*?\}\}|-j \d|\w+=\S+", "", command.partition("make")[2]).split()
            named = {word for word in words if re.fullmatch(r"[a-z-]+", word)}
            assert named
            assert named <= targets, name
