"""Data of a test that stands beside it in a TOML file of the same name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def data_beside(file: str) -> dict[str, Any]:
    """Return the content of the TOML file beside a test. ``file`` is the test's ``__file__``."""
    return tomllib.loads(Path(file).with_suffix(".toml").read_text(encoding="utf-8"))
