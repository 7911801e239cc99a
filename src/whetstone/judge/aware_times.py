"""The parts of a time with a time zone, in the encoding of ``values``.

Standard library only and self-contained: the same file runs inside the sandbox and outside. The zone becomes
its offset at that time, and its name. So a time from a hostile process has no code of its own. A process that
accepts objects also gets the key of a zone, so that later arithmetic uses its rules.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta, timezone, tzinfo
from typing import Any

_MAX_NAME = 100
_MOST_DAYS = 1


def zone_key(zone: tzinfo | None) -> str | None:
    """Return the key of a ZoneInfo; None for any other zone."""
    kind = type(zone)
    key = getattr(zone, "key", None) if (kind.__module__, kind.__name__) == ("zoneinfo", "ZoneInfo") else None
    return key if type(key) is str else None


def zone_parts(value: datetime | time) -> tuple[object, ...] | None:
    """Return offset, name and key of the time zone of ``value``; None if it has none at that time.

    Runs code of the zone, and raises whatever that raises.
    """
    offset = value.utcoffset() if value.tzinfo is not None else None
    if offset is None:
        return None
    name = value.tzname()
    name = str.__str__(name)[:_MAX_NAME] if isinstance(name, str) else None
    return (offset.days, offset.seconds, offset.microseconds, name, zone_key(value.tzinfo))


def timezone_parts(value: timezone) -> tuple[object, ...]:
    """Return offset and name of a fixed offset."""
    offset = value.utcoffset(None)
    return (offset.days, offset.seconds, offset.microseconds, value.tzname(None)[:_MAX_NAME])


def read_timezone(parts: tuple[Any, ...]) -> timezone:
    """Return the fixed offset with these parts. Raises ValueError if they are malformed."""
    match parts:
        case (int() as days, int() as seconds, int() as microseconds, (str() | None) as name) if (
            abs(days) <= _MOST_DAYS and 0 <= seconds < 86_400 and 0 <= microseconds < 1_000_000
        ):
            offset = timedelta(days, seconds, microseconds)
            plain = timezone(offset)
            # The name of an unnamed one is computed, and a given name would change its repr.
            return plain if name is None or name == plain.tzname(None) else timezone(offset, name[:_MAX_NAME])
        case _:
            raise ValueError("malformed time zone")
