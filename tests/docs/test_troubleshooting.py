"""The page "When something goes wrong" quotes messages that the code prints."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
SPAN = re.compile(r"`([^`\n]+)`")
# What a message leaves open: on the page, and in the texts below.
OPEN = "…"


@cache
def texts() -> str:
    """Return every text of the code on a line of its own, with OPEN for each value that is filled in."""
    found: list[str] = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        found += texts_of(ast.parse(path.read_text(encoding="utf-8")))
    signs = (ROOT / "src" / "whetstone" / "report" / "run_signs.toml").read_text(encoding="utf-8")
    found += [re.sub(r"\{\w+\}", OPEN, row["sentence"]) for row in tomllib.loads(signs).values()]
    return "\n".join(" ".join(text.split()) for text in found)


def texts_of(tree: ast.AST) -> Iterator[str]:
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else OPEN
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def is_printed(message: str) -> bool:
    """Return whether a text of the code has the words of a message."""
    words = (re.escape(piece.strip()) for piece in message.split(OPEN) if piece.strip())
    return re.search(".*".join(words), texts()) is not None


def rows() -> list[list[str]]:
    """Return the cells of every row that states a symptom, a cause and a remedy."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if len(row) != 2 and row[0] not in ("symptom", "---")]


def messages() -> list[str]:
    """Return the quoted messages: spans of several words in the first column."""
    return [span for row in rows() for span in SPAN.findall(row[0]) if " " in span]


def test_every_symptom_has_a_cause_and_a_remedy() -> None:
    assert len(rows()) >= 30
    assert [row for row in rows() if len(row) != 3 or not all(row)] == []
    assert len({row[0] for row in rows()}) == len(rows())


def test_every_quoted_message_is_printed_by_the_code() -> None:
    assert len(messages()) >= 30
    assert [message for message in messages() if not is_printed(message)] == []


def test_a_message_that_the_code_does_not_print_is_found() -> None:
    assert is_printed("this machine cannot run programs at isolation tier …")
    assert not is_printed("this machine can run programs at isolation tier …")
    assert not is_printed("no judge responds (…) at …")
