"""The style that every page of this project shares: colours of light and dark, type, panels, tables."""

from __future__ import annotations

from importlib import resources


def base_style() -> str:
    """The style sheet as text, to stand inside a page that loads nothing."""
    return (resources.files("whetstone.assets") / "base.css").read_text(encoding="utf-8")
