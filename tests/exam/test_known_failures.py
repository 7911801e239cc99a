"""The page of known failures names items and sections that exist."""

from __future__ import annotations

import re
from pathlib import Path

from whetstone.testing.attacks.corpus import load_corpus
from whetstone_exam.exam.items import exam_items
from whetstone_exam.exam.limits import limit_items
from whetstone_exam.exam.sections import FAILED_MACHINE, LEAKS, OVERLOAD
from whetstone_exam.exam.styles import style_items

PAGE = Path(__file__).parents[2] / "docs" / "known_failures.md"


def test_every_case_of_the_page_exists() -> None:
    items = {item.id for item in [*exam_items(load_corpus()), *limit_items(), *style_items()]}
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.count("|") == 4]
    cells = [row.split("|")[3] for row in rows if "https://" in row]
    assert len(cells) >= 25
    for cell in cells:
        cases = re.findall(r"`([^`]+)`", cell)
        assert cases
        unknown = {*cases} - items - {FAILED_MACHINE, LEAKS, OVERLOAD, "--rounds 2"}
        assert not unknown
