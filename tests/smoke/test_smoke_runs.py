"""``whetstone train RECIPE --smoke``: recipes go their whole way, small."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]


def turn() -> int:
    """A number that every commit has for itself; 0 where there is no repository."""
    if not shutil.which("git"):
        return 0
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    return int(asked.stdout[:8] or "0", 16)


def rotating(files: list[Path], turn: int) -> set[Path]:
    """Two of the recipes: all have their turn, whichever the number of recipes is."""
    return {files[turn % len(files)], files[(turn + len(files) // 2) % len(files)]}


FILES = sorted(ROOT.glob("recipes/*.yaml"))
IN_THIS_RUN = rotating(FILES, turn())
RECIPES = [
    pytest.param(file, id=file.stem, marks=[] if file in IN_THIS_RUN else [pytest.mark.slow])
    for file in FILES
]


def test_all_recipes_have_their_turn_two_in_a_run() -> None:
    turns = [rotating(FILES, turn) for turn in range(len(FILES))]
    assert all(len(two) == 2 for two in turns)
    assert set.union(*turns) == set(FILES)


def smoke(recipe: Path, folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whetstone", "train", str(recipe), *overrides, "--smoke"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TMPDIR": str(folder)},
        timeout=1500,
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_goes_its_whole_way_small(recipe: Path, tmp_path: Path) -> None:
    done = smoke(recipe, tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith(f"smoke: {recipe.stem}: ")
    assert "changed the weights" in last
    spread = "\nflow:" in recipe.read_text()  # then one of its roles is killed, and not the whole run
    assert ("restarting (1 of " if spread else "from step 1") in done.stdout
    assert not list(tmp_path.glob("whetstone-smoke-*"))
