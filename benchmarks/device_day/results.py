"""The figures of a run: a file of JSON lines that grows with each figure, and a page that is made from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from benchmarks.device_day.sections import SECTIONS

Record = dict[str, Any]

_INTRODUCTION = """# A day with a device: figures

Written by `python -m benchmarks.device_day`, whose page is `benchmarks/device_day.md`. Each table holds what
a section measured, in the order of measurement. All figures are in `{lines}`.
"""


class Results:
    """The results in ``folder``. The process of a section and its parent add to them in turn.

    A record is on the disk when ``add`` returns, and in the page, so a run that is cut off keeps it.
    """

    def __init__(self, folder: Path) -> None:
        self.lines = folder / "device_day.jsonl"
        self.page = folder / "device_day.md"

    def add(self, section: str, kind: str = "figures", /, **values: Any) -> None:
        """Add a record of a section. ``kind``: ``figures``, ``note``, or ``end`` with its outcome."""
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        line = json.dumps({"section": section, "kind": kind, "at": at, "values": values})
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.write_page()

    def read(self) -> list[Record]:
        """Return the records. A last line that was cut off is left out."""
        records: list[Record] = []
        for line in self.lines.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def write_page(self) -> None:
        """Write the page anew."""
        parts = [_INTRODUCTION.format(lines=self.lines.name)]
        records = self.read()
        present = {record["section"] for record in records}
        for section in SECTIONS:
            if section.name in present:
                own = [record for record in records if record["section"] == section.name]
                parts.append(f"## {section.name}\n\n{section.content}\n\n{_section_text(own)}")
        draft = self.page.with_suffix(".new")
        draft.write_text("\n".join(parts), encoding="utf-8")
        draft.replace(self.page)


def _section_text(records: list[Record]) -> str:
    parts: list[str] = []
    # Figures with the same columns form a table.
    for (kind, columns), group in groupby(records, lambda r: (r["kind"], tuple(r["values"]))):
        rows = [cast("Mapping[str, Any]", record["values"]) for record in group]
        if kind == "figures":
            parts.append(_table(columns, rows))
        else:
            parts += [_sentence(row) for row in rows]
    return "\n\n".join(parts) + "\n"


def _table(columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(_shown(row[column]) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def _sentence(values: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {_shown(value)}" for name, value in values.items())


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    # A line break or a bar would end the cell.
    return " ".join(str(value).split()).replace("|", "\\|")
