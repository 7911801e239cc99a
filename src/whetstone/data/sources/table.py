"""All sources by name: those of this package, and those of installed packages (entry points of the group
``whetstone.sources``). The module with the converter of a source is imported when the source is used."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import entry_points
from typing import Any

import msgspec

from whetstone.core.errors import UserError, did_you_mean
from whetstone.data.sources.source import DatasetSource

_TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    resources.files("whetstone.data.sources").joinpath("sources.toml").read_text(encoding="utf-8")
)
_INSTALLED = entry_points(group="whetstone.sources")
SOURCE_NAMES = tuple(sorted({*_TABLES, *_INSTALLED.names}))


def source_named(name: str) -> DatasetSource:
    """Return a source by name. Raises UserError for an unknown one."""
    if name in _INSTALLED.names:
        return _INSTALLED[name].load()
    if name not in _TABLES:
        raise UserError(
            f"no source `{name}`{did_you_mean(name, SOURCE_NAMES)} (list them: whetstone data show sources)"
        )
    fields = _fields_of(name)
    module, _, function = fields.pop("convert").rpartition(".")
    # Importing all modules would slow down every command that only names a source.
    convert = getattr(importlib.import_module(f"whetstone.data.sources.{module}"), function)
    return msgspec.convert({"name": name, "convert": convert, **fields}, DatasetSource)


def _fields_of(name: str) -> dict[str, Any]:
    """Return the fields of a source, with those of the source that it is ``like``."""
    fields = dict(_TABLES[name])
    like = fields.pop("like", None)
    if like is not None:
        fields = {**_fields_of(like), **fields}
    return {field: value for field, value in fields.items() if value}


def all_sources() -> Iterator[DatasetSource]:
    """Yield all sources by name."""
    for name in SOURCE_NAMES:
        yield source_named(name)
