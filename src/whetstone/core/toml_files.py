"""Tables that a package ships as TOML files."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def read_toml(package: str, name: str, kind: type[T]) -> T:
    """Return the content of the file ``name`` of a package as a ``kind``."""
    # `importlib.resources` would take more time to import than a file takes to read.
    folder = next(iter(import_module(package).__path__))
    return msgspec.convert(tomllib.loads(Path(folder, name).read_text(encoding="utf-8")), kind)
