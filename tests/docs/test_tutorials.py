"""Every file of a tutorial and of the first hour is written and every command is executed, in the order of
the page.

A block of `text` is output, or commands that need what the tests lack: a GPU, a network, several hosts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
# Each takes as long as all others together: they train a model.
LONG = ("first_hour", "own_parts", "own_tool", "read_a_run")
PAGES = [
    pytest.param(path, id=path.stem, marks=pytest.mark.extended if path.stem in LONG else ())
    for path in [ROOT / "docs" / "first_hour.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
    if path.stem != "index"
]
STATUS = re.compile(r"# exit status (\d+)")
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def commands_beside_this_python(folder: Path) -> dict[str, str]:
    """Return the environment of a shell in which `python` and `whetstone` are those of the tests."""
    folder.mkdir()
    python, source = sys.executable, ROOT / "src"
    for name, command in {"python": "", "whetstone": " -m whetstone"}.items():
        (folder / name).write_text(
            f'#!/bin/sh\nPYTHONPATH="{source}:$PYTHONPATH" exec "{python}"{command} "$@"\n'
        )
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def execute(text: str, folder: Path, environment: dict[str, str]) -> int:
    """Execute each command of a block, and return their number."""
    lines = text.replace("\\\n", " ").splitlines()
    for line in lines:
        status = STATUS.search(line)
        shell = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        expected = int(status[1]) if status else 0
        assert shell.returncode == expected, f"{line}\n{shell.stdout}\n{shell.stderr}"
    return len(lines)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_works_as_written(page: Path, tmp_path: Path) -> None:
    environment = commands_beside_this_python(tmp_path / "commands")
    work = tmp_path / "work"
    work.mkdir()
    executed = 0
    for language, title, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            (work / title).write_text(text, encoding="utf-8")
        elif language == "sh":
            executed += execute(text, work, environment)
        else:
            assert language == "text", f"{page.name}: give the block of `{language}` a title, to be tested"
    assert executed
