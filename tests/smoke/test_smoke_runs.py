"""``whetstone train RECIPE --smoke``: recipes go their whole way, small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]


FILES = sorted(ROOT.glob("recipes/*.yaml"))


def smoke(recipe: Path, folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whetstone", "train", str(recipe), *overrides, "--smoke"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TMPDIR": str(folder)},
        timeout=1500,
    )


@pytest.mark.drawn(2)
@pytest.mark.parametrize("recipe", FILES, ids=lambda file: file.stem)
def test_a_recipe_goes_its_whole_way_small(recipe: Path, tmp_path: Path) -> None:
    done = smoke(recipe, tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith(f"smoke: {recipe.stem}: ")
    assert "changed the weights" in last
    spread = "\nflow:" in recipe.read_text()  # then one of its roles is killed, and not the whole run
    assert ("restarting (1 of " if spread else "from step 1") in done.stdout
    assert not list(tmp_path.glob("whetstone-smoke-*"))
