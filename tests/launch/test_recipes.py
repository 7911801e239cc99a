"""Every recipe that ships loads, is checked without a network, and names a wrong field."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.engine.miniature import architecture_of
from whetstone.errors import UserError
from whetstone.launch.recipe import load_recipe, stage_recipes

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(ROOT.glob("recipes/*.yaml"))
WRONG = {
    "trainer.lrr=1": "`trainer.lrr`; did you mean `trainer.lr`",
    "evaluaton.every=1": "`evaluaton`; did you mean `evaluation`",
    "algorithm.kl_ceof=0.3": "`algorithm.kl_ceof`; did you mean `algorithm.kl_coef`",
}


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_a_recipe_that_ships_is_whole(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(os.environ, "WHETSTONE_FLOW_TOKEN", "a-token")
    status, said = main(["train", str(file), "--dry-run"]), capsys.readouterr()
    assert f"name: {file.stem}\n" in said.out
    # What a recipe for several GPUs needs may be missing on this machine; nothing else may be wrong.
    faults = said.err.partition("whetstone: ")[2].splitlines()
    missing = (
        "engine.options.python: /opt/vllm/bin/python: no such interpreter",
        "trainer.offload: the model is",
    )
    assert status == (2 if faults else 0)
    assert all(fault.startswith(missing) for fault in faults), said.err
    recipe = load_recipe(file)
    assert len(stage_recipes(recipe)) == max(1, len(recipe.stages))
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 52, "a recipe is one screen"
    if recipe.model.path:
        assert architecture_of(recipe.model.path) in {"qwen2", "qwen3", "qwen3_moe", "llama"}
    for override, words in WRONG.items():
        with pytest.raises(UserError) as refusal:
            load_recipe(file, [override])
        assert str(file) in str(refusal.value)
        assert words in str(refusal.value)


def test_published_recipes_say_what_differs() -> None:
    published = [
        file
        for file in RECIPES
        if file.stem not in {"tiny", "tiny-verifier", "tour", "quickstart", "async-quickstart"}
    ]
    assert published
    for file in published:
        comment = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        assert any("Corrected" in line or "Ours" in line for line in comment), file
