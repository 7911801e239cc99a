"""Relative links of all pages lead to files of the repository, and their anchors to headings.

Each page has one title, and links to pages show titles, not names of files.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "benchmarks").glob("*.md"),
    *(ROOT / "examples").rglob("README.md"),
]
FENCE = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE_AS_TEXT = re.compile(r"\[`?[\w./-]+\.md`?\]\(")
# Made when the site is built, from the settings.
GENERATED = ROOT / "docs" / "reference" / "recipe.md"


def text_of(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s+", "-", heading) for heading in plain}


def broken(page: Path, text: str) -> list[str]:
    found: list[str] = []
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        exists = target.is_file() or target == GENERATED
        if not exists or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    assert broken(page, text_of(page)) == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != ROOT / "README.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_has_one_title_and_links_show_titles(page: Path) -> None:
    text = text_of(page)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    assert FILE_AS_TEXT.findall(text) == []


def test_the_home_leads_to_every_page() -> None:
    home = ROOT / "docs" / "index.md"
    found = {(home.parent / link.partition("#")[0]).resolve() for link in LINK.findall(text_of(home))}
    pages = {
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "reference").glob("*.md"),
        ROOT / "CHANGELOG.md",
    }
    assert pages - {home} - found == set()


def test_a_missing_file_and_a_missing_heading_are_found() -> None:
    page = ROOT / "docs" / "index.md"
    text = "[a](absent.md) [b](judging.md#absent) [c](judging.md#verdicts) [d](https://example.org)"
    assert broken(page, text) == ["absent.md", "judging.md#absent"]
