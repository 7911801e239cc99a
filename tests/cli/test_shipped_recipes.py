"""Recipes that ship are found by name, from any folder, and can be had as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from whetstone.cli.main import main
from whetstone.core.shipped_recipes import shipped_names
from whetstone.run.problem_sets import needs_build
from whetstone.run.recipe import load_recipe

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.drawn(7)
@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_recipe_is_found_by_its_name_in_any_folder(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe == load_recipe(RECIPES / f"{name}.yaml") == load_recipe(f"recipes/{name}.yaml")
    if recipe.data.build is not None:
        assert needs_build(recipe)  # its pipeline was found, too


def test_a_file_of_ones_own_goes_before_one_that_ships(elsewhere: Path) -> None:
    (elsewhere / "recipes").mkdir()
    for place in (elsewhere / "tiny", elsewhere / "recipes" / "tiny.yaml"):
        place.write_text("name: mine\nmodel: {path: m}\n", encoding="utf-8")
        assert load_recipe(place.relative_to(elsewhere)).name == "mine"


def test_a_folder_is_not_taken_for_a_recipe_of_its_name(elsewhere: Path) -> None:
    (elsewhere / "tiny").mkdir()
    assert load_recipe("tiny").name == "tiny"


def test_what_is_no_recipe_is_refused_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "quickstrt"]) == 2
    assert "such as recipes/tiny.yaml; did you mean `quickstart`?" in capsys.readouterr().err
    assert main(["recipes", "bultin", "--data"]) == 2
    assert "there is no shipped recipe `bultin`; did you mean `builtin`?" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [[], ["--data"]])
def test_each_recipe_has_a_description_and_can_be_printed(
    kind: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recipes", "--json", *kind]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) >= 8
    assert main(["recipes", *kind]) == 0
    table = capsys.readouterr().out
    for each in listed:
        assert each["name"] in table
        assert 20 <= len(each["about"]) <= 240, each
        assert main(["recipes", each["name"], *kind]) == 0
        assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(Path(each["file"]).read_text())
