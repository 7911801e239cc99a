"""The defects of problems: a name, a meaning and a default treatment for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.toml_files import read_toml

Treatment = Literal["drop", "mark", "ignore"]


class _Defect(Struct, frozen=True):
    """A defect: its default treatment, and its meaning in one line."""

    treatment: Treatment
    meaning: str


class DefectFlag(Struct, frozen=True):
    """A defect found in a problem, with a detail for a person."""

    reason: str
    detail: str


REASONS = read_toml("whetstone.data.validate", "reasons.toml", dict[str, _Defect])
"""The defects by weight. A problem with several defects is dropped for the first of them."""

# Defects that make the check of a set fail: its tests or programs are not valid.
FAILS_CHECK = frozenset(
    {
        *(reason for reason, known in REASONS.items() if known.treatment == "drop"),
        *("references_differ", "reference_removed", "wrong_program_passes", "not_judged"),
    }
)


def check_reason(name: str) -> None:
    """Raise UserError for an unknown reason."""
    if name not in REASONS:
        raise UserError(f"unknown reason `{name}`{did_you_mean(name, REASONS)} (known: {', '.join(REASONS)})")


def by_weight(flags: Iterable[DefectFlag]) -> list[DefectFlag]:
    """Return the flags in the order of ``REASONS``, one for each reason with joined details."""
    details: dict[str, list[str]] = {}
    for flag in flags:
        details.setdefault(flag.reason, []).append(flag.detail)
    return [DefectFlag(reason, "; ".join(details[reason])) for reason in REASONS if reason in details]
