"""The account of a run's tokens, from the records of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whetstone.rollout.ledger import unaccounted

LEDGER = "ledger/"
_DROPPED, _IN_FLIGHT = "dropped/", "in_flight/"


def latest_tokens(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the account after the last of these training steps; empty if it was not recorded."""
    clock: Mapping[str, Any] = records[-1].get("time", {}) if records else {}
    return {name.removeprefix(LEDGER): int(count) for name, count in clock.items() if name.startswith(LEDGER)}


def ledger_line(tokens: Mapping[str, int]) -> str:
    """Return the account as an equation."""
    dropped, in_flight = _part(tokens, _DROPPED), _part(tokens, _IN_FLIGHT)
    gap = unaccounted(tokens)
    missing = f"; {gap} are not accounted for" if gap else ""
    return (
        f"{tokens['generated']} generated = {tokens['trained']} trained + {tokens['replayed']} replayed"
        f" + {sum(dropped.values())} dropped{_listed(dropped)}"
        f" + {sum(in_flight.values())} in flight{_listed(in_flight)}{missing}"
    )


def ledger_rows(tokens: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each account."""
    total = tokens.get("generated", 0)
    if not total:
        return
    yield "generated", f"{total:,} tokens"
    for name, count in tokens.items():
        if name != "generated" and (count or name in ("trained", "replayed")):
            title = name.replace(_DROPPED, "dropped: ").replace(_IN_FLIGHT, "in flight: ").replace("_", " ")
            yield title, f"{count:,} ({count / total:.2%})"
    if gap := unaccounted(tokens):
        yield "not accounted for", f"{gap:,}"


def _part(tokens: Mapping[str, int], prefix: str) -> dict[str, int]:
    found = {name.removeprefix(prefix): count for name, count in tokens.items() if name.startswith(prefix)}
    return {name: count for name, count in found.items() if count}


def _listed(part: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{count} {name}' for name, count in part.items())})" if part else ""
