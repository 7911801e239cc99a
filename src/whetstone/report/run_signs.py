"""Signs that a run learns nothing or loses its replies, found in the metrics of its steps.

``run_signs.toml`` is the only list: the terminal prints its rows, ``metrics.jsonl`` has ``sign/NAME: 1`` in
the steps in which a row holds, and the page shows those steps. They depend on recorded metrics only, so a
resumed run finds the same ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from math import fsum
from typing import Any

from msgspec import Struct

from whetstone.core.toml_files import read_toml
from whetstone.core.verdict import Verdict
from whetstone.report.metrics import Record

WINDOW = 5
"""A sign holds for the last so many steps together."""
KEY = "sign/"
_COUNTED = ("sample/", "verdict/", "loss/updates", "loss/skipped")


class RunSign(Struct, frozen=True, forbid_unknown_fields=True):
    """A row of ``run_signs.toml``, which explains the fields. The sentence has the share as ``{share}``."""

    part: str
    whole: list[str]
    bound: float
    sentence: str
    remedy: str
    without: str = ""

    def share(self, sums: Counter[str]) -> float | None:
        """Return the share in steps with these sums of metrics; None if it is not known."""
        whole = fsum(sums[key] for key in self.whole)
        return (sums[self.part] - sums[self.without]) / whole if whole else None


SIGNS = read_toml("whetstone.report", "run_signs.toml", dict[str, RunSign])


def _sums(records: Sequence[Record]) -> Counter[str]:
    """Return the sums of the metrics of some steps that signs are about."""
    sums = Counter[str]()
    for record in records:
        sums.update({key: value for key, value in record.items() if key.startswith(_COUNTED)})
        sums["verdicts"] += sum(record.get(f"verdict/{verdict.value}", 0) for verdict in Verdict)
        if "loss/updates" in record:
            sums["steps"] += 1
            sums["untrained"] += not (record.get("loss/grad_norm") or record.get("loss/skipped"))
    return sums


def found_signs(records: Sequence[Record]) -> dict[str, str]:
    """Return the signs that hold over all of the train records together: a sentence with its remedy by
    name."""
    trained = [record for record in records if record["kind"] == "train"]
    steps = " to ".join(dict.fromkeys(str(each["step"]) for each in (*trained[:1], *trained[-1:])))
    found: dict[str, str] = {}
    sums = _sums(trained)
    for name, sign in SIGNS.items():
        share = sign.share(sums)
        if share is not None and share >= sign.bound:
            sentence = sign.sentence.format(share=f"{share:.0%}")
            found[name] = f"steps {steps}: {sentence}. {' '.join(sign.remedy.split())}"
    return found


class SignWatch:
    """The signs of a run in progress. ``records``: those that are in its file already."""

    def __init__(self, records: Iterable[Record]) -> None:
        trained = (record for record in records if record["kind"] == "train")
        self._recent = deque(trained, 2 * WINDOW)

    def add(self, record: dict[str, Any]) -> list[str]:
        """Add the keys of the signs to a train record. Return the texts of those that did not hold in any of
        the ``WINDOW`` steps before."""
        window = [*self._recent, record][-WINDOW:]
        found = found_signs(window) if len(window) == WINDOW else {}
        before = {key for each in [*self._recent][-WINDOW:] for key in each if key.startswith(KEY)}
        record |= {f"{KEY}{name}": 1 for name in found}
        self._recent.append(record)
        return [text for name, text in found.items() if f"{KEY}{name}" not in before]


def sign_rows(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return for each sign in the train records of a run how often it held, and its text as of the last
    time."""
    rows: list[tuple[str, str]] = []
    for name, sign in SIGNS.items():
        places = [place for place, record in enumerate(records) if f"{KEY}{name}" in record]
        if places:
            last = places[-1] + 1
            text = found_signs(records[max(0, last - WINDOW) : last]).get(name, sign.remedy)
            rows.append((f"held {len(places)} times, first at step {records[places[0]]['step']}", text))
    return rows
