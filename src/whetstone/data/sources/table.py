"""All sources by name: those of this package, those of installed packages (entry points of the group
``whetstone.sources``), and map files by path. The module with the converter of a source is imported when the
source is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.settings import read_mapping, read_settings
from whetstone.core.toml_files import read_toml
from whetstone.data.sources.source import ColumnMap, DatasetSource

_TABLES = read_toml("whetstone.data.sources", "sources.toml", dict[str, dict[str, Any]])
_INSTALLED = entry_points(group="whetstone.sources")
MAP_ENDINGS = (".yaml", ".yml")
_MAP_FIELDS = ("name", "title", "licence", "path", "hub_id", "revision", "files", "map")
SOURCE_NAMES = tuple(sorted({*_TABLES, *_INSTALLED.names}))


def source_named(name: str) -> DatasetSource:
    """Return a source by name, or that of a map file by its path. Raises UserError for an unknown one."""
    if name.endswith(MAP_ENDINGS):
        fields = read_mapping(name, what="a map of columns", example="whetstone data import --help")
        return mapped_source(fields, name)
    if name in _INSTALLED.names:
        return _INSTALLED[name].load()
    if name not in _TABLES:
        raise UserError(
            f"no source `{name}`{did_you_mean(name, SOURCE_NAMES)} (list them: whetstone data show sources)"
        )
    return _source({"name": name, **_fields_of(name)})


def mapped_source(fields: Mapping[str, Any], where: str) -> DatasetSource:
    """Return the source of a map file, which is a table as in ``sources.toml`` without columns, with a name.

    Raises UserError, which begins with ``where``, for invalid fields.
    """
    for field in fields:
        if field not in _MAP_FIELDS:
            known = ", ".join(_MAP_FIELDS)
            raise UserError(f"{where}: no key `{field}`{did_you_mean(field, _MAP_FIELDS)} (known: {known})")
    columns = read_settings(ColumnMap, fields.get("map", {}), where=where)
    given = {"name": Path(where).stem, "title": where, "licence": "not stated", "files": {}, **fields}
    try:
        return _source({**given, "columns": {}, "id_columns": [columns.id] if columns.id else []})
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {error}") from None


def _source(fields: dict[str, Any]) -> DatasetSource:
    columns = fields.pop("map", None)
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
