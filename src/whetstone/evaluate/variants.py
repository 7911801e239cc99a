"""Parts of a benchmark: the words after its name, as in ``livecodebench:release_v5:2024-08-01..``.

LiveCodeBench (Jain et al. 2024, arXiv 2403.07974) grows by files. ``release_vN`` is all files up to the Nth,
``vN`` only that file, and ``vM_vN`` a range of them. Most papers report a window of contest dates:
2024-08-01..2025-02-01 in release_v5 has 279 problems. Both ends are midnights, as in its own runner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean

Row = dict[str, Any]


class Variant(Struct, frozen=True):
    """A part of a benchmark.

    files: names or globs of its files, in order; empty for all of them. exact: whether exactly these files
    are required, so that a single other file is rejected. keep: whether a row belongs to it. count: the known
    number of problems; 0 if unknown. words: its name, for the manifest.
    """

    files: tuple[str, ...] = ()
    exact: bool = False
    keep: Callable[[Row], bool] | None = None
    count: int = 0
    words: tuple[str, ...] = ()


# Problems of release_v1 to release_v6.
_RELEASES = (400, 511, 612, 713, 880, 1055)
_FILES = ("test.jsonl", *(f"test{number}.jsonl" for number in range(2, len(_RELEASES) + 1)))
_KNOWN_WINDOWS = {
    ((0, 5), "2024-08-01", "2025-02-01"): 279,
    ((0, 6), "2024-08-01", "2025-02-01"): 279,
    ((0, 6), "2025-02-01", "2025-05-01"): 131,
}
_DAY = r"\d{4}-\d{2}-\d{2}"


def livecodebench_variant(words: Sequence[str]) -> Variant:
    """Return a release (default: release_v6, all) with an optional window. Raises UserError for
    other words."""
    span, start, end, exact = (0, len(_RELEASES)), "", "", False
    for word in words:
        if window := re.fullmatch(rf"({_DAY})?\.\.({_DAY})?", word):
            start, end = _day(window[1]), _day(window[2])
        else:
            span, exact = _span(word), True
    first, last = span
    total = _RELEASES[last - 1] - (_RELEASES[first - 1] if first else 0)
    windowed = bool(start or end)
    return Variant(
        files=_FILES[first:last],
        exact=exact,
        keep=(lambda row: _within(row, start, end)) if windowed else None,
        count=_KNOWN_WINDOWS.get((span, start, end), 0) if windowed else total,
        words=(_span_name(first, last), *([f"{start}..{end}"] * windowed)),
    )


def _span(word: str) -> tuple[int, int]:
    """Return the files [first, last) of a release or of a slice."""
    found = re.fullmatch(r"release_v([1-6])|v([1-6])(?:_v([1-6]))?", word)
    if found is None or (found[3] and found[3] < found[2]):
        known = [*(f"release_v{n}" for n in range(1, 7)), "release_latest", *(f"v{n}" for n in range(1, 7))]
        if word == "release_latest":
            return 0, len(_RELEASES)
        raise UserError(
            f"livecodebench has no `{word}`{did_you_mean(word, known)} (release_v1 to release_v6 for all up "
            "to there, v1 to v6 and v4_v5 for parts, and a window of dates such as 2024-08-01..2025-02-01)"
        )
    if found[1]:
        return 0, int(found[1])
    return int(found[2]) - 1, int(found[3] or found[2])


def _span_name(first: int, last: int) -> str:
    """Return the name of a span, as LiveCodeBench writes it."""
    if not first:
        return f"release_v{last}"
    return f"v{last}" if last == first + 1 else f"v{first + 1}_v{last}"


def _day(text: str | None) -> str:
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError as error:
        raise UserError(f"livecodebench: {text} is not a date: {error}") from None


def _within(row: Row, start: str, end: str) -> bool:
    """Return whether a row is in a window of dates."""
    if "contest_date" not in row:
        # Not a row of LiveCodeBench: its importer reports the error.
        return True
    try:
        day = datetime.fromisoformat(str(row["contest_date"])).replace(tzinfo=None)
    except ValueError:
        return False
    # As in LiveCodeBench, both ends are midnights, so a contest later on the last day is outside.
    first, last = (datetime.fromisoformat(text) if text else None for text in (start, end))
    return (first is None or first <= day) and (last is None or day <= last)


def variant_of(
    benchmark: str,
    words: Sequence[str],
    default: str,
    splits: Mapping[str, str],
    tasks: Mapping[str, tuple[int, int]],
    counts: Mapping[str, int],
) -> Variant:
    """Return a part of another benchmark. Raises UserError for words that name none.

    ``splits`` are parts with the globs of their files, ``tasks`` parts with their first and last ``task_id``;
    ``all`` has every part, and no words the part ``default``. ``counts`` are the known numbers of problems.
    """
    known = (*splits, *tasks, *(["all"] if default else []))
    if words and not known:
        raise UserError(f"benchmark `{benchmark}` has no parts; leave out `:{':'.join(words)}`")
    name, asked = words[0] if words else default, ":".join(words)
    if len(words) > 1 or (known and name not in known):
        raise UserError(
            f"benchmark `{benchmark}` has no `{asked}`{did_you_mean(asked, known)} ({', '.join(known)})"
        )
    first, last = tasks.get(name, (0, 0))
    return Variant(
        files=(splits[name],) if name in splits else tuple(splits.values()),
        keep=(lambda row: row.get("task_id") in range(first, last + 1)) if name in tasks else None,
        count=counts.get(name, 0),
        words=(name,) if known else (),
    )
