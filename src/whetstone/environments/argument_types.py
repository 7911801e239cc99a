"""The types of a call's arguments by the JSON schema of its tool.

Calls in tags have texts as arguments. The tools of the environment and the clients of the gateway get the
same values for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import NoneType
from typing import Any, cast

from whetstone.core.literal import read_literal
from whetstone.environments.tool_calls import Call, MalformedCall, read_json

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (NoneType,),
}
# The chat template of Qwen3-Coder writes these values as Python does.
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_REFERENCE = "#/"
# A Python literal takes far more memory than its text.
_MOST_LITERAL = 100_000


def types_of(name: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return the JSON types that an argument may have; empty if any. ``parameters`` is the tool's schema."""
    properties: Any = parameters.get("properties")
    known = isinstance(properties, Mapping) and name in properties
    place: Any = properties[name] if known else parameters.get("additionalProperties")
    return _types(place, parameters, {}) or []


def has_type(value: object, types: list[str]) -> bool:
    """Return whether a value has one of the types."""
    # A bool is an int in Python, but not in JSON.
    return any(
        isinstance(value, _TYPES[t]) and (t == "boolean" or not isinstance(value, bool)) for t in types
    )


def typed(text: str, types: list[str]) -> Any:
    """Return the value that a text stands for. A text that fits no other type stays a text.

    Raises MalformedCall if a text is not allowed and this one is not JSON.
    """
    if not types:
        return text
    try:
        value = _value_of(text, types)
    except MalformedCall:
        if "string" in types:
            return text
        raise
    return value if "string" not in types or has_type(value, types) else text


def typed_arguments(call: Call, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, typed where that is possible."""
    if not call.untyped:
        return call.arguments
    found: dict[str, Any] = {}
    for name, text in call.arguments.items():
        try:
            found[name] = typed(text, types_of(name, parameters))
        except MalformedCall:
            found[name] = text
    return found


def _value_of(text: str, types: list[str]) -> Any:
    """Return the value of a text in JSON, or as Python writes it. Raises MalformedCall."""
    word = text.strip()
    if word.lower() in _CONSTANTS:
        return _CONSTANTS[word.lower()]
    if types == ["string"]:
        return text
    try:
        return read_json(text)
    except MalformedCall:
        if not word.startswith(("[", "{", "(")) or len(word) > _MOST_LITERAL:
            raise
        try:
            return read_json(json.dumps(read_literal(word)))
        except (ValueError, TypeError, RecursionError):
            pass
        raise


def _types(schema: Any, root: Mapping[str, Any], seen: dict[str, list[str] | None]) -> list[str] | None:
    """Return the JSON types that a schema allows; None if any. Each reference is resolved once."""
    if not isinstance(schema, Mapping):
        return None
    rules = cast("Mapping[str, Any]", schema)
    allowed = _declared(rules)
    reference = rules.get("$ref")
    if isinstance(reference, str):
        if reference not in seen:
            seen[reference] = None  # one that refers to itself
            seen[reference] = _types(_resolved(reference, root), root, seen)
        allowed = _both(allowed, seen[reference])
    for each in _listed(rules.get("allOf")):
        allowed = _both(allowed, _types(each, root, seen))
    for union in ("anyOf", "oneOf"):
        members = [_types(each, root, seen) for each in _listed(rules.get(union))]
        if members and None not in members:
            allowed = _both(allowed, [name for member in members for name in member or ()])
    if allowed is not None and rules.get("nullable") is True:
        allowed = [*allowed, "null"]
    return None if allowed is None else list(dict.fromkeys(allowed))


def _declared(rules: Mapping[str, Any]) -> list[str] | None:
    declared = rules.get("type")
    names = [name for name in (_listed(declared) or [declared]) if isinstance(name, str) and name in _TYPES]
    if names:
        return names
    values = [rules["const"]] if "const" in rules else _listed(rules.get("enum"))
    return [name for name in _TYPES if any(has_type(value, [name]) for value in values)] or None


def _both(one: list[str] | None, other: list[str] | None) -> list[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return [name for name in one if name in other or (name == "integer" and "number" in other)]


def _resolved(reference: str, root: Mapping[str, Any]) -> Any:
    """Return the part of a schema that a reference names; None for a part that does not exist."""
    if not reference.startswith(_REFERENCE):
        return None
    place: Any = root
    for name in reference.removeprefix(_REFERENCE).split("/"):
        if not isinstance(place, Mapping):
            return None
        place = cast("Mapping[str, Any]", place).get(name.replace("~1", "/").replace("~0", "~"))
    return place


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
