"""The comparison of trained groups with sampled groups, as the folder of a run stores it.

The flow of an asynchronous run computes these figures (``rollout/audit.py``). Its trainer stores the latest
ones in the folder, from which they are read when no flow is running.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from whetstone.core.outputs import write_file

AUDIT_FILE = "flow-audit.json"
_DROPPED = "audit/dropped/"


class KeptAudit(Struct, frozen=True):
    """The figures after a step. ``accounts``: the number of groups in each state."""

    step: int
    figures: dict[str, float]
    accounts: dict[str, int]


def keep_audit(run: Path, audit: KeptAudit) -> None:
    """Write the figures to the folder of a run."""
    content = {"step": audit.step, "figures": audit.figures, "accounts": audit.accounts}
    write_file(run / AUDIT_FILE, [json.dumps(content, indent=1).encode() + b"\n"])


def read_audit(run: Path) -> KeptAudit | None:
    """Return the latest figures; None if there are none."""
    try:
        content: Any = json.loads((run / AUDIT_FILE).read_text(encoding="utf-8"))
        return KeptAudit(int(content["step"]), dict(content["figures"]), dict(content["accounts"]))
    # A report must not fail because of a damaged file with additional figures.
    except (OSError, ValueError, KeyError, TypeError):
        return None


def audit_rows(figures: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each figure; nothing if no group was sampled."""
    sampled = figures.get("audit/sampled/groups", 0.0)
    if not sampled:
        return
    trained = figures.get("audit/trained/groups", 0.0)
    yield "groups trained", f"{trained:.0f} of {sampled:.0f} sampled"
    for name, title, form in (("length", "tokens of a reply", ".1f"), ("reward", "reward", ".3f")):
        both = [figures.get(f"audit/{which}/{name}") for which in ("trained", "sampled")]
        if None not in both:
            means = cast("list[float]", both)
            yield f"{title}, mean", f"{means[0]:{form}} trained, {means[1]:{form}} sampled"
    for name, title in (
        ("length_shift", "difference of lengths"),
        ("source_shift", "difference of sources"),
        ("difficulty_shift", "difference of difficulty"),
    ):
        if f"audit/{name}" in figures:
            yield title, f"{figures[f'audit/{name}']:.3f} (0 none, 1 all)"
    for key in figures:
        if key.startswith(_DROPPED) and key.endswith("/share"):
            reason = key.removeprefix(_DROPPED).removesuffix("/share")
            yield f"dropped as {reason.replace('_', ' ')}", _dropped_text(figures, f"{_DROPPED}{reason}")


def _dropped_text(figures: Mapping[str, float], key: str) -> str:
    text = f"{figures[f'{key}/share']:.1%} of the groups"
    for name, title, form in (("length_bias", "length", "+.1f"), ("reward_bias", "reward", "+.3f")):
        if f"{key}/{name}" in figures:
            text += f"; without them the mean {title} would change by {figures[f'{key}/{name}']:{form}}"
    return text
