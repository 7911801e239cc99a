"""Every key of every settings class is described: on the page, for editors, and in the schema of recipes."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from whetstone.cli.main import main
from whetstone.core.settings import Section
from whetstone.core.shipped_recipes import SCHEMA_LINE
from whetstone.run.recipe import Recipe
from whetstone.run.settings_schema import describe

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "src", *sorted(ROOT.glob("packages/*/src"))]
KINDS = {"recipes": [], "recipes/data": ["--data"]}


def settings_classes() -> Iterator[type[Section]]:
    """Yield every settings class of Whetstone and of its packages."""
    for source in SOURCES:
        for file in source.rglob("*.py"):
            if re.search(r"^class \w+\(\w*(?:Section|Settings|Options|Algorithm|Sampling|Choices)\w*[,)]",
                         file.read_text(encoding="utf-8"), re.MULTILINE):  # fmt: skip
                importlib.import_module(".".join(file.relative_to(source).with_suffix("").parts))
    waiting: list[type[Section]] = [Section]
    while waiting:
        waiting += (found := waiting.pop()).__subclasses__()
        if found is not Section and found.__module__.startswith("whetstone"):
            yield found


def test_every_key_of_every_settings_class_has_a_description() -> None:
    classes = {found.__module__ + "." + found.__qualname__: found for found in settings_classes()}
    assert len(classes) > 60
    bare = [
        f"{name}.{key}"
        for name, found in classes.items()
        for key, text in describe(found).items()
        if len(text.split()) < 2
    ]
    assert bare == []


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    return {kind: json.loads((ROOT / kind / "schema.json").read_text(encoding="utf-8")) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_in_the_folder_of_recipes_equals_the_printed_one(
    kind: str, schemas: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("whetstone_curation")  # it adds a step of pipelines
    assert main(["recipes", "--schema", *KINDS[kind]]) == 0
    printed = capsys.readouterr().out
    command = f"whetstone recipes --schema {' '.join(KINDS[kind])} > {kind}/schema.json"
    assert json.loads(printed) == schemas[kind], f"write it again: {command}"


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_recipes_fit_the_schema_that_their_first_line_names(
    kind: str, schemas: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    jsonschema.Draft7Validator.check_schema(schemas[kind])
    validator = jsonschema.Draft7Validator(schemas[kind])
    files = sorted((ROOT / kind).glob("*.yaml"))
    assert len(files) > 5
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert text.startswith(SCHEMA_LINE), file
        assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == [], file
        # A printed recipe is for any folder.
        assert main(["recipes", file.stem, *KINDS[kind]]) == 0
        named = capsys.readouterr().out.partition("\n")[0].partition("$schema=")[2]
        assert Path(named) == ROOT / kind / "schema.json"


@pytest.mark.parametrize(
    "wrong",
    [
        "trainer: {lrr: 1}",
        "trainer: {lr: -1}",
        "workflow: {kind: repair}",
        "algorithm: {preset: dapo, clip_high: much}",
        "environment: {answer_format: none}",
        "model: {scratch: {layers: 0}}",
    ],
)
def test_the_schema_rejects_the_mistakes_that_a_run_rejects(wrong: str, schemas: dict[str, Any]) -> None:
    assert list(jsonschema.Draft7Validator(schemas["recipes"]).iter_errors(yaml.safe_load(wrong)))


def test_the_schema_describes_every_key(schemas: dict[str, Any]) -> None:
    parts = {"Recipe": schemas["recipes"], **schemas["recipes"]["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, content in part.get("properties", {}).items()
        if not content.get("description")
    ]
    assert bare == []
    assert schemas["recipes"]["properties"].keys() - {"base"} == Recipe.model_fields.keys()


def test_the_page_has_every_key_in_a_group_that_can_be_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "hooks"))
    text = importlib.import_module("recipe_keys").recipe_page()
    sys.modules.pop("recipe_keys")
    outside = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert "| `" not in outside
    rows = re.findall(r"^\| `([\w.]+)` \|.*\| (.*) \|$", text, re.MULTILINE)
    assert {"name", "trainer.lr", "model.scratch.layers", "algorithm.kl_coef"} <= {key for key, _ in rows}
    assert [key for key, description in rows if not description.strip()] == []
    assert 'id="key-filter"' in text
