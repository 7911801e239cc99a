"""What is known of a problem beside its tests: the limits and tags that its page says."""

from __future__ import annotations

import re
from typing import Any, cast

from whetstone.data.sources.packed import unpack
from whetstone.data.sources.source import Skip
from whetstone.problem import Limits

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "ms": 0.001, "millisecond": 0.001}
_MEGABYTES = {
    **{"": 1.0, "m": 1.0, "mb": 1.0, "mib": 1.0, "megabyte": 1.0},
    **{"kb": 2.0**-10, "kib": 2.0**-10, "kilobyte": 2.0**-10, "b": 2.0**-20, "byte": 2.0**-20},
    **{"g": 2.0**10, "gb": 2.0**10, "gib": 2.0**10, "gigabyte": 2.0**10},
}


def limits_of(time: Any, memory: Any) -> Limits:
    """Limits at least as wide as those published ("2.0 seconds", "256 megabytes", a number of seconds or
    megabytes), and as ours.

    Sites set theirs for compiled languages: they never make the limits narrower.
    """
    ours = Limits()
    return Limits(
        cpu_s=max(ours.cpu_s, _amount(time, _SECONDS)),
        memory_mb=max(ours.memory_mb, _amount(memory, _MEGABYTES)),
    )


def _amount(value: Any, units: dict[str, float]) -> float:
    """The amount in the base unit; 0 for what says none."""
    found = _AMOUNT.match(str(value)) if isinstance(value, str | int | float) else None
    if found is None:
        return 0.0
    unit = found[2].lower()
    return float(found[1]) * units.get(unit, units.get(unit.removesuffix("s"), 0.0))


def known(**facts: Any) -> dict[str, Any]:
    """The facts that are known: without those that are None or empty."""
    return {name: fact for name, fact in facts.items() if fact not in (None, "", [], {})}


def names_in(value: Any) -> list[str]:
    """Tags: a list of names, or one packed into text. Other values hold none."""
    if isinstance(value, str) and value.strip():
        try:
            value = unpack(value, "tags")
        except Skip:
            return []
    return (
        [name for name in cast(list[Any], value) if isinstance(name, str)] if isinstance(value, list) else []
    )
