"""The descriptions of settings, for the reference page and the schema that editors read.

A key is described by an entry of the docstring of its class or a base class, or by its ``Flag``. An entry
begins with the name of a key, or several with commas between them, and a colon. Commands that do not show
descriptions read none.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Annotated, Any, get_args, get_origin

from whetstone.core.flag import Flag
from whetstone.core.settings import Section


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
