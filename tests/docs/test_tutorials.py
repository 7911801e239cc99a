"""Every file of a tutorial is written and every command is executed, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs" / "tutorials").glob("*.md") if path.name != "index.md")
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def commands_beside_this_python(folder: Path) -> dict[str, str]:
    """The environment of a shell in which `python` and `whetstone` are those of the tests."""
    folder.mkdir()
    python, source = sys.executable, ROOT / "src"
    for name, command in {"python": "", "whetstone": " -m whetstone"}.items():
        (folder / name).write_text(f'#!/bin/sh\nPYTHONPATH="{source}" exec "{python}"{command} "$@"\n')
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_works_as_written(page: Path, tmp_path: Path) -> None:
    environment = commands_beside_this_python(tmp_path / "commands")
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    work = tmp_path / "work"
    work.mkdir()
    executed = 0
    for language, title, text in blocks:
        if title:
            (work / title).write_text(text, encoding="utf-8")
            continue
        assert language == "sh", (
            f"{page.name}: a block of `{language}` needs a title, so that it can be tested"
        )
        # `sh -e` ignores a command after `!`, so each line is a command of its own.
        for line in text.splitlines():
            shell = subprocess.run(
                ["sh", "-c", line], cwd=work, env=environment, capture_output=True, text=True, timeout=600
            )
            assert shell.returncode == 0, f"{line}\n{shell.stdout}\n{shell.stderr}"
            executed += 1
    assert executed
