"""JSON Schemas of recipes and pipelines, for editors: keys, types, bounds, defaults and descriptions.

A key is described by an entry of the docstring of its class or a base class, or by its ``Flag``. An entry
begins with the name of a key, or several with commas between them, and a colon. Commands that do not show
descriptions read none.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, get_args, get_origin

from whetstone.algorithm.named import algorithm_class, preset_names
from whetstone.core.flag import Flag
from whetstone.core.settings import Section
from whetstone.data.pipeline import Pipeline
from whetstone.run.recipe import Recipe


def docstring_entries(section: type[Section]) -> tuple[str, dict[str, str]]:
    """Return the general text of a section's own docstring, and the text of each key that has its own."""
    names = "|".join(map(re.escape, section.model_fields))
    text = re.sub(r"\s+", " ", inspect.cleandoc(section.__dict__.get("__doc__") or ""))
    text = re.sub(r":class:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    entry = re.compile(rf"(?:^|(?<=[.;] )|(?<=; or ))((?:(?:{names})(?:, | and )?)+): ")
    general, *entries = entry.split(text) if names else [text]
    found: dict[str, str] = {}
    for keys, description in zip(entries[::2], entries[1::2], strict=True):
        for key in re.split(r", | and ", keys):
            found[key] = description.strip().removesuffix("; or").removesuffix(";")
    return general.strip(), found


def describe(section: type[Section]) -> dict[str, str]:
    """Return the description of each key of a section; empty for one without."""
    bases = [base for base in section.__mro__ if issubclass(base, Section) and base is not Section]
    entries = [docstring_entries(base)[1] for base in bases]
    return {
        name: field.description
        or next((found[name] for found in entries if name in found), "")
        or _flag_help(field.metadata, field.annotation)
        for name, field in section.model_fields.items()
    }


def _flag_help(metadata: Iterable[Any], annotation: Any) -> str:
    """Return the help of the last flag, which may be in a part of the annotation."""
    for each in reversed(list(metadata)):
        if isinstance(each, Flag):
            return each.help
    parts = [part for part in get_args(annotation) if get_origin(part) is Annotated]
    return next((help for part in parts if (help := _flag_help(get_args(part)[1:], get_args(part)[0]))), "")


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
