"""Every place that turns undecodable bytes into an error of its own includes bytes that are not UTF-8.

msgspec raises UnicodeDecodeError for these, which none of its own exceptions covers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[1]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "packages").glob("*/src/**/*.py")]
OF_MSGSPEC = {"MsgspecError", "DecodeError"}
COVERING = {"ValueError", "UnicodeDecodeError", "UnicodeError", "UnicodeEncodeError", "Exception"}


def caught(handlers: list[ast.ExceptHandler]) -> set[str]:
    """The names of the exceptions that a try statement catches."""
    types = [node for handler in handlers if handler.type for node in ast.walk(handler.type)]
    return {node.attr if isinstance(node, ast.Attribute) else node.id for node in types
            if isinstance(node, ast.Attribute | ast.Name)}  # fmt: skip


def decodes(node: ast.AST) -> bool:
    """Whether a node is a call of ``msgspec.json.decode`` or ``msgspec.msgpack.decode``."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "msgspec.json.decode",
        "msgspec.msgpack.decode",
    )


def uncovered(source: str) -> Iterator[int]:
    """Lines of try statements that catch msgspec's exceptions only."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Try) and any(decodes(each) for part in node.body for each in ast.walk(part)):
            names = caught(node.handlers)
            if names & OF_MSGSPEC and not names & COVERING:
                yield node.lineno


def test_text_that_is_not_utf8_is_caught_wherever_invalid_data_is() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(SOURCES)
        for line in uncovered(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_the_check_finds_a_try_statement_that_catches_too_little() -> None:
    few = "try:\n    x = msgspec.json.decode(b)\nexcept (OSError, msgspec.DecodeError):\n    pass\n"
    assert list(uncovered(few)) == [1]
    assert list(uncovered(few.replace("OSError", "UnicodeDecodeError"))) == []
    with pytest.raises(UnicodeDecodeError):
        msgspec.json.decode(b'"\xff"')
