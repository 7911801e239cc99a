"""Fixtures of whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.tiny_recipe import write_recipe


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the tiny recipe, which no test changes."""
    return write_recipe(tmp_path_factory.mktemp("recipe"))
