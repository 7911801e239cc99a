"""The page of recipe keys, made from the settings classes of ``whetstone.run.recipe.Recipe``."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from whetstone.algorithm.named import algorithm_class, preset_names
from whetstone.run.recipe import Recipe

_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_HEAD = """# Recipe keys

The settings classes of this version give the keys below.
`whetstone train RECIPE key=value --dry-run` checks values and prints the complete recipe.
[Training](../training.md) explains the sections.
"""


def recipe_page() -> str:
    """Return the page as Markdown: one part for each section, then one for each algorithm preset."""
    parts = [_HEAD, *_part("Top level", Recipe, "")]
    for prefix, section in _sections(Recipe, ""):
        parts += _part(f"`{prefix}`", section, f"{prefix}.")
    for name in preset_names():
        preset = algorithm_class(name)
        parts += _part(f"`algorithm`, preset `{name}`", preset, "algorithm.")
    return "\n".join(parts)


def key_descriptions(section: type[BaseModel]) -> tuple[str, dict[str, str]]:
    """Return the general text of a section's docstring, and the text of each key that has its own.

    An entry begins with the name of a key, or several with commas between them, and a colon.
    """
    names = "|".join(map(re.escape, section.model_fields))
    text = re.sub(r"\s+", " ", inspect.cleandoc(section.__dict__.get("__doc__") or ""))
    text = re.sub(r":class:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    entry = re.compile(rf"(?:^|(?<=[.;] )|(?<=; or ))((?:(?:{names})(?:, | and )?)+): ")
    general, *entries = entry.split(text)
    found: dict[str, str] = {}
    for keys, description in zip(entries[::2], entries[1::2], strict=True):
        for key in re.split(r", | and ", keys):
            found[key] = description.strip().removesuffix("; or")
    return general.strip(), found


def type_text(annotation: Any) -> str:
    """Return a type as a reader of YAML needs it, for example ``text``, ``list of number`` or ``a | b``."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return type_text(arguments[0])
    if origin is Literal:
        return " \\| ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " \\| ".join(dict.fromkeys(type_text(each) for each in arguments))
    if origin in (tuple, list):
        members = dict.fromkeys(type_text(each) for each in arguments if each is not Ellipsis)
        return "list of " + " or ".join(members)
    if origin is dict or annotation is dict:
        return "mapping"
    simple = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}
    return simple.get(
        annotation, "section" if _section_of(annotation) else getattr(annotation, "__name__", "any")
    )


def _section_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section_of, get_args(annotation))), None)


def _sections(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in section.model_fields.items():
        nested = _section_of(field.annotation)
        # The keys of an algorithm depend on its preset.
        if nested is not None and name != "algorithm":
            yield prefix + name, nested
            yield from _sections(nested, f"{prefix}{name}.")


def _part(title: str, section: type[BaseModel], prefix: str) -> list[str]:
    general, descriptions = key_descriptions(section)
    rows = [
        _row(prefix + name, field, descriptions.get(name, "")) for name, field in section.model_fields.items()
    ]
    table = ["| key | type | default | description |", "| --- | --- | --- | --- |", *rows]
    return [f"## {title}\n", f"{general}\n", *(table if rows else []), ""]


def _row(key: str, field: FieldInfo, description: str) -> str:
    bounds = [
        f"{sign} {getattr(each, name):g}"
        for each in field.metadata
        for name, sign in _BOUNDS.items()
        if isinstance(getattr(each, name, None), int | float)
    ]
    kind = ", ".join([type_text(field.annotation), *bounds])
    text = (field.description or description).replace("|", "\\|")
    return f"| `{key}` | {kind} | {_default(field)} | {text} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined or isinstance(value, BaseModel):
        return "see below"
    shown = list(value) if isinstance(value, tuple) else value
    simple = {None: "null", True: "true", False: "false", "": '""'}
    text = simple[shown] if isinstance(shown, str | bool | None) and shown in simple else str(shown)
    text = text if not isinstance(shown, str) or not shown else re.sub(r"\n", r"\\n", text)
    return f"`{text}`".replace("|", "\\|")
