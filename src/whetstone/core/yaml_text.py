"""Reads YAML. Every invalid text has one kind of error."""

from __future__ import annotations

from typing import Any

import yaml


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text. Raises yaml.YAMLError, also for an impossible date such as 2024-02-30,
    an integer of thousands of digits, a tag that does not fit its value, and values that are nested too
    deeply."""
    try:
        return yaml.safe_load(text)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None
