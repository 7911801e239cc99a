"""Whetstone without the package of graders: what needs it is rejected with the command that installs it."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from whetstone.cli.main import main
from whetstone.core import graders
from whetstone.core.errors import UserError
from whetstone.evaluate.grading import check_grading

INSTALL = r"whetstone-graders; install it: pip install \./packages/graders"


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: Any) -> EntryPoints:
        return EntryPoints(list[EntryPoint]())

    monkeypatch.setattr(importlib.metadata, "entry_points", none)


@pytest.mark.usefixtures("no_packages")
def test_official_rules_name_the_command_that_installs_them() -> None:
    check_grading("ours", [])
    with pytest.raises(UserError, match=f"harness `official` needs the package {INSTALL}"):
        check_grading("official", [])
    assert graders.installed_comparisons() == ()


@pytest.mark.usefixtures("no_packages")
@pytest.mark.parametrize("action", ["rejudge", "rating"])
def test_the_actions_name_the_command_that_installs_them(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", action, str(tmp_path), "--standings", "x"]) != 0
    assert f"`whetstone eval {action}` needs the package whetstone-graders" in capsys.readouterr().err


def test_the_installed_package_is_found() -> None:
    assert graders.installed_comparisons() == ("whetstone_graders.comparisons",)
    check_grading("official", [])
