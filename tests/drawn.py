"""Draws what ``make test`` runs of a large set of cases; ``make test-all`` runs the rest too.

The commit decides what is drawn, so a failure can be repeated, and every case is drawn within a few commits.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from whetstone import __version__

_ROOT = Path(__file__).parents[1]


@cache
def commit() -> str:
    """Return the hash of the commit that is tested, or the version outside of a repository."""
    command = ["git", "-C", str(_ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return __version__


def drawn(
    cases: Iterable[Any],
    count: int,
    *,
    always: Sequence[Any] = (),
    ids: Sequence[str] | None = None,
    name: str = "",
) -> list[Any]:
    """Return all cases as parameters. Those that are not drawn have the mark ``extended``.

    count: how many are drawn. ``always`` are drawn first.
    ids: names of the cases, where pytest would make none.
    name: distinguishes the draws of equal sets.
    """
    listed = list(cases)
    others = [number for number, case in enumerate(listed) if case not in always]
    kept = [number for number, case in enumerate(listed) if case in always]
    picked = Random(f"{commit()} {name} {len(listed)}").sample(
        others, max(0, min(count - len(kept), len(others)))
    )
    chosen = {*kept, *picked}
    return [
        pytest.param(
            case, id=ids[number] if ids else None, marks=() if number in chosen else pytest.mark.extended
        )
        for number, case in enumerate(listed)
    ]
