"""Whetstone without its optional packages: what needs one is rejected with the command that installs it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from importlib.abc import MetaPathFinder
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.optional_packages import PACKAGE_OF_COMMAND, installed_comparisons, load_command
from whetstone.evaluate.measure import check_grading


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: Any) -> EntryPoints:
        return EntryPoints(list[EntryPoint]())

    monkeypatch.setattr(importlib.metadata, "entry_points", none)


@pytest.mark.usefixtures("no_packages")
@pytest.mark.parametrize("command", PACKAGE_OF_COMMAND)
def test_a_command_of_a_missing_package_names_the_package_to_install(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    package = PACKAGE_OF_COMMAND[command]
    words = command.split(".")
    for arguments in ([], ["folder", "--option", "x"], ["--option=x", "folder"], ["--help"]):
        assert main([*words, *arguments]) == 2
        assert capsys.readouterr().err == (
            f"whetstone: `whetstone {' '.join(words)}` needs the package {package}; "
            f"install it: pip install -c constraints.txt ./packages/{package.removeprefix('whetstone-')}\n"
        )


@pytest.mark.usefixtures("no_packages")
def test_official_rules_name_the_command_that_installs_them() -> None:
    check_grading("ours", [])
    needed = r"harness `official` needs the package whetstone-graders; .*pip install .*\./packages/graders"
    with pytest.raises(UserError, match=needed):
        check_grading("official", [])
    assert installed_comparisons() == ()


def test_the_parts_of_installed_packages_are_found() -> None:
    assert installed_comparisons() == ("whetstone_graders.comparisons",)
    check_grading("official", [])
    for command in PACKAGE_OF_COMMAND:
        assert callable(load_command(command))


def test_the_command_of_a_missing_extra_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Missing(MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: object = None) -> None:
            if fullname == "mcp":
                raise ModuleNotFoundError("No module named 'mcp'", name="mcp")

    for name in list(sys.modules):
        if name == "mcp" or name.startswith(("mcp.", "whetstone.integrations.mcp")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    assert main(["judge", "mcp"]) == 2
    assert "install the extra mcp: pip install -c constraints.txt -e '.[mcp]'" in capsys.readouterr().err


@pytest.mark.process
def test_steps_of_a_missing_package_name_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text("name: mine\nstart: builtin:train\nsteps: [strengthen: {}]\n")
    script = (
        "import importlib.metadata as metadata\n"
        "metadata.entry_points = lambda **_: metadata.EntryPoints([])\n"
        "from whetstone.data.pipeline import load_pipeline\nload_pipeline('pipeline.yaml')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (
        "needs the package whetstone-curation; install it: pip install -c constraints.txt ./packages/curation"
        in done.stderr
    )
