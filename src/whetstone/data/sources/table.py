"""All sources by name: those of this package, those of installed packages (entry points of the group
``whetstone.sources``), and map files by path. The module with the converter of a source is imported when the
source is used."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import entry_points
from typing import Any

import msgspec

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.settings import read_settings
from whetstone.data.sources.column_map import ENDINGS, ColumnMap, MapFile, read_map_file
from whetstone.data.sources.source import DatasetSource

_TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    resources.files("whetstone.data.sources").joinpath("sources.toml").read_text(encoding="utf-8")
)
_INSTALLED = entry_points(group="whetstone.sources")
SOURCE_NAMES = tuple(sorted({*_TABLES, *_INSTALLED.names}))


def source_named(name: str) -> DatasetSource:
    """Return a source by name, or that of a map file by its path. Raises UserError for an unknown one."""
    if name.endswith(ENDINGS):
        return mapped_source(read_map_file(name))
    if name in _INSTALLED.names:
        return _INSTALLED[name].load()
    if name not in _TABLES:
        raise UserError(
            f"no source `{name}`{did_you_mean(name, SOURCE_NAMES)} (list them: whetstone data show sources)"
        )
    return _source({"name": name, **_fields_of(name)})


def mapped_source(content: MapFile) -> DatasetSource:
    """Return the source of a map file, whose columns of statement and tests are required."""
    parts = ("statement", "tests", "inputs", "outputs")
    required = {column: part for part, column in content.map.columns().items() if part in parts}
    fields = content.model_dump(exclude_none=True)
    # The first name of a path is the column that a row has.
    columns = {
        f"{column} or {column.split('.')[0]}" if "." in column else column: f"the {part}"
        for column, part in required.items()
    }
    ids = (content.map.id,) if content.map.id else ()
    return _source({**fields, "title": content.title or content.name, "columns": columns, "id_columns": ids})


def _source(fields: dict[str, Any]) -> DatasetSource:
    columns = fields.pop("map", None)
    if columns is not None:
        fields = {"convert": "mapped.convert", **fields}
    for field in fields.keys() & {"convert", "join"}:
        module, _, function = fields[field].rpartition(".")
        # Importing all modules would slow down every command that only names a source.
        fields[field] = getattr(importlib.import_module(f"whetstone.data.sources.{module}"), function)
    source = msgspec.convert(fields, DatasetSource)
    return msgspec.structs.replace(source, map=read_settings(ColumnMap, columns) if columns else None)


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
