"""JSON Schemas of recipes and pipelines, for editors: keys, types, bounds, defaults and descriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

from whetstone.algorithm.named import algorithm_class, preset_names
from whetstone.core.setting_descriptions import describe, docstring_entries
from whetstone.core.settings import Section
from whetstone.data.pipeline import Pipeline
from whetstone.run.recipe import Recipe

_BASE = {
    "type": "string",
    "description": "The name or path of another file, whose keys apply where this file has none.",
}


def schema_text(kind: str = "") -> str:
    """Return the schema of the recipes of runs, or of those in the folder ``kind``, as the text of a file."""
    schema = recipe_schema() if not kind else _schema(Pipeline)
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def recipe_schema() -> dict[str, Any]:
    """Return the schema of a recipe. ``algorithm`` takes the keys of every preset, and those of your own."""
    schema = _schema(Recipe)
    properties: dict[str, Any] = {}
    for name in preset_names():
        preset = _schema(algorithm_class(name))
        properties = preset["properties"] | properties
        schema["$defs"] |= preset.get("$defs", {})
    properties["preset"] = {
        "anyOf": [{"enum": preset_names()}, {"type": "string"}],
        "description": describe(algorithm_class(preset_names()[0]))["preset"],
    }
    del properties["base"]
    # The default of a key depends on the preset.
    for each in properties.values():
        each.pop("default", None)
    schema["$defs"]["Algorithm"] |= {"properties": properties, "additionalProperties": True}
    return schema


def _schema(section: type[Section]) -> dict[str, Any]:
    schema = section.model_json_schema()
    classes = {each.__name__: each for each in _sections_in(section)}
    for name, part in ((section.__name__, schema), *schema.get("$defs", {}).items()):
        # A file may leave keys to its base.
        part.pop("required", None)
        if name not in classes:
            continue
        part["description"] = docstring_entries(classes[name])[0]
        for key, text in describe(classes[name]).items():
            name_in_file = classes[name].model_fields[key].alias or key
            part["properties"][name_in_file] |= {"description": text}
    schema["properties"]["base"] = dict(_BASE)
    return schema


def _sections_in(section: type[Section]) -> Iterator[type[Section]]:
    """Yield a section, and those of its keys."""
    yield section
    for field in section.model_fields.values():
        waiting: list[Any] = [field.annotation]
        while waiting:
            kind = waiting.pop()
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from _sections_in(kind)
            waiting += get_args(kind)
