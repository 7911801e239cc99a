"""Every recipe that ships loads, is checked without a network, and names a wrong field."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.engine.scratch import architecture_of
from whetstone.run.recipe import load_recipe, stage_recipes

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(ROOT.glob("recipes/*.yaml"))
WRONG = {
    "trainer.lrr=1": "`trainer.lrr`; did you mean `trainer.lr`",
    "evaluaton.every=1": "`evaluaton`; did you mean `evaluation`",
    "algorithm.kl_ceof=0.3": "`algorithm.kl_ceof`; did you mean `algorithm.kl_coef`",
}


@pytest.mark.process
@pytest.mark.drawn(6)
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


def test_a_base_gives_the_keys_that_a_recipe_does_not_name(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(
        "name: first\nmodel: {path: m}\ntrainer: {steps: 7, lr: 1.0e-4}\n"
        "algorithm: {preset: dapo, clip_high: 0.3}\n"
    )
    second = tmp_path / "second.yaml"
    second.write_text("name: second\nbase: first\ntrainer: {steps: 9}\nalgorithm: {preset: grpo}\n")
    recipe = load_recipe(second, ["trainer.prompts_per_step=3"])
    assert (recipe.name, recipe.model.path) == ("second", "m")
    assert (recipe.trainer.steps, recipe.trainer.lr, recipe.trainer.prompts_per_step) == (9, 1e-4, 3)
    # Another preset has its own values.
    assert recipe.algorithm == load_recipe(tmp_path / "first.yaml", ["algorithm={preset: grpo}"]).algorithm


def test_a_base_that_leads_back_or_is_missing_is_an_error(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("base: second\nname: first\n")
    second.write_text("base: first\nname: second\n")
    with pytest.raises(UserError, match=r"second\.yaml: `base: first` leads back to this file"):
        load_recipe(first)
    first.write_text("base: quickstrt\nname: first\n")
    with pytest.raises(UserError, match="did you mean `quickstart`"):
        load_recipe(first)


def test_published_recipes_state_their_differences() -> None:
    published = [
        file
        for file in RECIPES
        if file.stem not in {"tiny", "tiny-verifier", "tour", "quickstart", "async-quickstart"}
    ]
    assert published
    for file in published:
        comment = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        words = ("Corrected", "Own choices", "An own recipe")
        assert any(word in line for line in comment for word in words), file
