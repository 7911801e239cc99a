"""Integers with more digits than Python converts by default (4,300), up to ``MOST_DIGITS``.

Python's conversion takes quadratic time. Long integers are converted in parts here, which bounds the time.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

MOST_DIGITS = 100_000
_PART_DIGITS = 4000


def parse_integer(text: str) -> int:
    """Return the integer of decimal digits with an optional sign. Raises ValueError for too many digits."""
    if len(text) <= _PART_DIGITS:
        return int(text)
    digits = text.removeprefix("-")
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"an integer of more than {MOST_DIGITS:,} digits")
    number = _parse_digits(digits)
    return -number if text[0] == "-" else number


def _parse_digits(digits: str) -> int:
    if len(digits) <= _PART_DIGITS:
        return int(digits)
    low = len(digits) // 2
    return _parse_digits(digits[:-low]) * 10**low + _parse_digits(digits[-low:])


def format_integer(number: int) -> str:
    """Return the decimal digits. Raises ValueError for too many."""
    if is_short(number):
        return str(number)
    if number.bit_length() > MOST_DIGITS * 3.322:
        raise ValueError(f"an integer of more than {MOST_DIGITS:,} digits")
    parts: list[str] = []
    rest, base = abs(number), 10**_PART_DIGITS
    while rest:
        rest, part = divmod(rest, base)
        parts.append(str(part).zfill(_PART_DIGITS))
    return ("-" if number < 0 else "") + "".join(reversed(parts)).lstrip("0")


def is_short(number: int) -> bool:
    """Return whether Python and msgspec convert the integer."""
    return number.bit_length() <= 3 * _PART_DIGITS


def read_json(text: str | bytes) -> Any:
    """Return the value of JSON with long integers. Raises ValueError and RecursionError."""
    return json.loads(text, parse_int=parse_integer)


def decode_json(text: str | bytes) -> Any:
    """Return the value of JSON, also with long integers, NaN and lone surrogates. Raises ValueError and
    RecursionError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # Only the standard library reads these.
        return read_json(text)
