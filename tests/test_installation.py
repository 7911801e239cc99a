"""Installation: one remedy for what is installed, one lock, no dead links in the description."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from whetstone.core import optional_packages
from whetstone.core.optional_packages import install_command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
# The only two forms: an extra, and an optional package, both in a clone.
IN_A_CLONE = re.compile(
    r"pip install (?:-q )?(?:--no-cache-dir )?-c constraints\.txt (?:-e \.|-e '\.\[|'?\.|\./packages/)"
)
OF_WHETSTONE = re.compile(
    r"pip install [^`\n]*(?:whetstone-(?:rl|exam|graders|curation)|-e '?\.(?![.\w])|\./packages/)"
)
# Checkouts of other projects are installed as these projects ask.
OTHER_PROJECTS = re.compile(r"--no-deps -e")


def texts() -> list[Path]:
    """Return every page and every module that may print a remedy."""
    folders = ("src", "packages", "docs", "examples", "deploy")
    files = [path for name in folders for path in (ROOT / name).rglob("*")]
    pages = [
        path for path in files if path.suffix in (".md", ".py", ".html", ".js") or path.name == "Dockerfile"
    ]
    return [*pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]


def test_no_text_installs_whetstone_in_another_way_than_from_this_clone() -> None:
    wrong: list[str] = []
    for path in texts():
        if path.name == "optional_packages.py":
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if OTHER_PROJECTS.search(line):
                continue
            if any(not IN_A_CLONE.match(line, found.start()) for found in OF_WHETSTONE.finditer(line)):
                wrong.append(f"{path.relative_to(ROOT)}: {line.strip()}")
    assert wrong == []
    assert OF_WHETSTONE.search("run pip install 'whetstone-rl[train]'")
    assert OF_WHETSTONE.search("pip install -e '.[train]'")


def test_a_remedy_is_for_the_installation_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert install_command("train") == "pip install -c constraints.txt -e '.[train]'"
    assert install_command(package="whetstone-exam") == "pip install -c constraints.txt ./packages/exam"
    installed = tmp_path / "site-packages" / "whetstone" / "core" / "optional_packages.py"
    monkeypatch.setattr(optional_packages, "__file__", str(installed))
    assert install_command("train") == "pip install 'whetstone-rl[train]'"
    assert install_command(package="whetstone-exam") == "pip install whetstone-exam"


def test_every_extra_that_a_remedy_names_exists() -> None:
    named = re.compile(r"install_command\(\"?'?(\w+)[\"']\)|e '\.\[([a-z,]+)\]")
    found = {extra for path in texts() for match in named.findall(path.read_text(encoding="utf-8"))
             for extra in "".join(match).split(",")}  # fmt: skip
    assert {"train", "serve", "parquet"} <= found
    assert found - {"extra"} <= PROJECT["project"]["optional-dependencies"].keys()


def test_the_lock_holds_the_requirements_and_the_tested_versions() -> None:
    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    [own] = [each for each in LOCK if each["name"] == "whetstone-rl"]
    locked = {
        (each["name"], each.get("marker", ""), each.get("specifier", ""))
        for each in own["metadata"]["requires-dist"]
    }
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [("", each) for each in PROJECT["project"]["dependencies"]]
    wanted += [(extra, each) for extra, needs in extras.items() for each in needs]
    for extra, requirement in wanted:
        name, version = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?(.*)", requirement).groups()  # type: ignore[union-attr]
        marker = f"extra == '{extra}'" if extra else ""
        assert name == "whetstone-rl" or (normal(name), marker, version) in locked, (
            f"{requirement}: not in uv.lock; run `make uv.lock`"
        )
    versions: dict[str, set[str]] = {}
    for each in LOCK:
        versions.setdefault(each["name"], set()).add(each.get("version", ""))
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, equal, version = line.partition("#")[0].strip().partition("==")
        if equal and normal(name) in versions:
            assert versions[normal(name)] == {version}, f"{name}: run `make uv.lock`"


def test_the_lock_names_the_public_index_alone() -> None:
    sources = {each["source"].get("registry") for each in LOCK}
    assert sources == {"https://pypi.org/simple", None}
    hosts = {part["url"].split("/")[2] for each in LOCK for part in each.get("wheels", [])}
    assert hosts == {"files.pythonhosted.org"}


@pytest.mark.parametrize("repository", ["", "https://example.org/whetstone"])
def test_the_long_description_has_no_relative_links(repository: str) -> None:
    pytest.importorskip("hatchling")
    place = ROOT / "packages" / "long_description.py"
    spec = importlib.util.spec_from_file_location("long_description", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = module.long_description(readme, repository)
    assert re.findall(r"\]\((?!https?:|#)", text) == []
    for target in re.findall(r"\]\(https://example\.org/whetstone/(?:blob|raw)/HEAD/([^)#]+)", text):
        assert (ROOT / target).exists(), target
    assert bool(module.project_urls(repository)) == bool(repository)
    metadata: dict[str, Any] = {}
    module.LongDescriptionHook(str(ROOT), {}).update(metadata)
    assert metadata["readme"]["content-type"] == "text/markdown"
