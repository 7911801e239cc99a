"""The page of recipe keys, made from the settings classes of ``whetstone.run.recipe.Recipe``."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from whetstone.algorithm.algorithm import Algorithm
from whetstone.algorithm.named import algorithm_class, preset_names
from whetstone.core.settings import Section
from whetstone.run.recipe import Recipe
from whetstone.run.settings_schema import describe, docstring_entries

_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_HEAD = """# Recipe keys

The settings classes of this version give the keys below, one group for each section. A click opens a group.
The field finds keys and words of descriptions in all groups.
`whetstone train RECIPE key=value --dry-run` checks values and prints the complete recipe.
`whetstone recipes --schema` prints the keys as a JSON Schema. The first line of the shipped recipes names it
for editors. [Training](../training.md) explains the sections.

<p><input id="key-filter" class="md-input" type="search"
    placeholder="Find keys" aria-label="Find keys and words of descriptions"></p>
"""
_SCRIPT = """
<script>
(() => {
  const groups = document.querySelectorAll("details.keys");
  // A group, and the heading and the text above it.
  const withHeading = (group) => {
    const found = [group];
    while (found.at(-1).tagName !== "H2" && found.at(-1).previousElementSibling) {
      found.push(found.at(-1).previousElementSibling);
    }
    return found;
  };
  document.getElementById("key-filter").addEventListener("input", (event) => {
    const word = event.target.value.trim().toLowerCase();
    for (const group of groups) {
      let found = 0;
      for (const row of group.querySelectorAll("tbody tr")) {
        row.hidden = word !== "" && !row.textContent.toLowerCase().includes(word);
        found += row.hidden ? 0 : 1;
      }
      group.open = word !== "" && found > 0;
      // The theme sets `display` of groups, so `hidden` has no effect on them.
      const display = word !== "" && found === 0 ? "none" : "";
      for (const element of withHeading(group)) element.style.display = display;
    }
  });
  // A link or a result of the search leads to the heading above a group.
  const open = () => {
    let element = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    while (element && !element.matches("details")) element = element.nextElementSibling;
    if (element) element.open = true;
  };
  window.addEventListener("hashchange", open);
  open();
})();
</script>
"""


def recipe_page() -> str:
    """Return the page as Markdown: one group for each section, then one for each algorithm preset."""
    parts = [_HEAD, *_part("Top level", Recipe, "")]
    for prefix, section in _sections(Recipe, ""):
        parts += _part(f"`{prefix}`", section, f"{prefix}.")
    parts += _part("`algorithm`, all presets", Algorithm, "algorithm.")
    for name in preset_names():
        preset = algorithm_class(name)
        parts += _part(f"`algorithm`, preset `{name}`", preset, "algorithm.", base=Algorithm)
    return "\n".join([*parts, _SCRIPT])


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


def _section_of(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_of, get_args(annotation))), None)


def _sections(section: type[Section], prefix: str) -> Iterator[tuple[str, type[Section]]]:
    for name, field in section.model_fields.items():
        nested = _section_of(field.annotation)
        # The keys of an algorithm depend on its preset.
        if nested is not None and name != "algorithm":
            yield prefix + name, nested
            yield from _sections(nested, f"{prefix}{name}.")


def _part(title: str, section: type[Section], prefix: str, base: type[Section] | None = None) -> list[str]:
    """Return a heading, the general text, and the keys of a section as a group that opens.

    base: a section whose keys are left out, unless their default is another one here.
    """
    common = base.model_fields if base else {}
    descriptions = describe(section)
    rows = [
        _row(prefix + name, field, descriptions[name])
        for name, field in section.model_fields.items()
        if name not in common or _default(field) != _default(common[name])
    ]
    general = docstring_entries(section)[0]
    count = f"{len(rows)} key{'s' * (len(rows) != 1)}" + (
        " of its own, or with another default" if base else ""
    )
    table = ["| key | type | default | description |", "| --- | --- | --- | --- |", *rows]
    group = [f'<details class="keys" markdown="1"><summary>{count}</summary>', "", *table, "", "</details>"]
    return [f"## {title}\n", f"{general}\n", *(group if rows else []), ""]


def _row(key: str, field: FieldInfo, description: str) -> str:
    bounds = [
        f"{sign} {getattr(each, name):g}"
        for each in field.metadata
        for name, sign in _BOUNDS.items()
        if isinstance(getattr(each, name, None), int | float)
    ]
    kind = ", ".join([type_text(field.annotation), *bounds])
    text = description.replace("|", "\\|")
    return f"| `{key}` | {kind} | {_default(field)} | {text[:1].upper()}{text[1:]} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined or isinstance(value, Section):
        return "see below"
    shown = list(value) if isinstance(value, tuple) else value
    simple = {None: "null", True: "true", False: "false", "": '""'}
    text = simple[shown] if isinstance(shown, str | bool | None) and shown in simple else str(shown)
    text = text if not isinstance(shown, str) or not shown else re.sub(r"\n", r"\\n", text)
    return f"`{text}`".replace("|", "\\|")
