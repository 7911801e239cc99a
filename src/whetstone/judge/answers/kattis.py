"""Printed text against expected text as the default output validator of Kattis holds them side by side."""

from __future__ import annotations

import re
from itertools import islice
from math import isfinite

from whetstone.problem import Compare

# What C++ streams split on; a run of it, or of anything else.
_RUNS = re.compile(rb"[ \t\n\v\f\r]+|[^ \t\n\v\f\r]+")
_SPACE = frozenset(b" \t\n\v\f\r")
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(
    rb"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
)
# float.fromhex takes quadratic time: more digits than this decide nothing in a double.
_MAX_HEXADECIMAL = 4096


def compare_kattis(output: bytes, wanted: bytes, rule: Compare) -> tuple[bool, str]:
    """Kattis problemtools at a185fe9, ``support/default_validator``: the default output validator.

    Tokens, without regard to (ASCII) case unless ``case_sensitive``. With a tolerance, an expected token
    that scans as a finite double is met by a finite double within ``abs`` or ``rel``. With
    ``space_change_sensitive`` the white space is the same byte for byte. (There, a NUL byte ends a token.)
    """
    needed = _RUNS.findall(wanted)
    # White space and tokens take turns, and one of them may come first.
    found = [match[0] for match in islice(_RUNS.finditer(output), 2 * len(needed) + 3)]
    if not rule.space_change_sensitive:
        found, needed = ([run for run in runs if run[0] not in _SPACE] for runs in (found, needed))
    for number, (left, right) in enumerate(zip(found, needed, strict=False)):
        if left != right and not _kattis_match(left, right, rule):
            return False, f"token {number + 1} differs"
    if len(found) != len(needed):
        return False, "more output than expected" if len(found) > len(needed) else "less output than expected"
    return True, ""


def _kattis_match(left: bytes, right: bytes, rule: Compare) -> bool:
    if left[0] in _SPACE or right[0] in _SPACE:
        return False
    needed = _scanned(right) if rule.abs is not None or rule.rel is not None else None
    if needed is not None:
        found = _scanned(left)
        if found is None:
            return False
        difference = abs(needed - found)
        return difference <= _bound(rule.abs) or difference <= _bound(rule.rel) * abs(needed)
    return not rule.case_sensitive and left.lower() == right.lower()


def _bound(tolerance: float | None) -> float:
    return -1.0 if tolerance is None else tolerance


def _scanned(token: bytes) -> float | None:
    """The finite double that C's ``%lf`` makes of a whole token; None where it makes none."""
    if _DECIMAL.fullmatch(token):
        value = float(token)
    elif len(token) <= _MAX_HEXADECIMAL and _HEXADECIMAL.fullmatch(token):
        try:
            value = float.fromhex(token.decode("ascii"))
        except OverflowError:
            return None
    else:
        return None
    return value if isfinite(value) else None
