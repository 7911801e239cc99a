"""Everything that parses Python text does it one thread at a time, through ``whetstone.core.syntax``."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from whetstone.core.literal import read_literal
from whetstone.core.syntax import NotPython, parse, parse_expression, symbols

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "src" / "whetstone", *sorted(ROOT.glob("packages/*/src/whetstone_*")))
# What runs in a process of one thread: beside a program, or beside the tests.
ALONE = ("judge/rpc/", "sandbox/zygote/", "stand_in.py")
PARSERS = {"ast.parse", "compile", "symtable.symtable"}


def bare(node: ast.AST, held: bool = False) -> Iterator[int]:
    """Lines of calls to a parser that are not made within ``with parsing()``."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in PARSERS and not held:
        yield node.lineno
    if isinstance(node, ast.With):
        held = held or any(ast.unparse(item.context_expr) == "parsing()" for item in node.items)
    for child in ast.iter_child_nodes(node):
        yield from bare(child, held)


def test_nothing_parses_by_another_way() -> None:
    found = [
        f"{file}:{line}"
        for package in PACKAGES
        for file in package.rglob("*.py")
        if not str(file.relative_to(package)).startswith(ALONE)
        for line in bare(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_the_rule_sees_a_parser_that_stands_bare() -> None:
    assert list(
        bare(ast.parse("import ast\nast.parse('1')\nwith parsing():\n    compile('1', '', 'exec')"))
    ) == [2]


@pytest.fixture
def threads_take_turns() -> Iterator[None]:
    """Threads change places wherever they can: at every collection, also in the middle of a parse."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()

    def pause(*_: object) -> None:
        for _round in range(10):
            pass

    gc.callbacks.append(pause)
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)
    gc.callbacks.remove(pause)


@pytest.mark.usefixtures("threads_take_turns")
@pytest.mark.parametrize("door", [parse, parse_expression, symbols, read_literal])
def test_threads_that_parse_at_once_get_their_own_tree(door: Callable[[str], object]) -> None:
    texts = [str([[1, (2,), [3]]] * 50), "(1, 2)", "{3: 4}"] * 100
    with ThreadPoolExecutor(4) as pool:
        assert all(found is not None for found in pool.map(door, texts))


@pytest.mark.parametrize("text", ["(", "\0", "x = = 1", "(" * 500 + ")" * 500])
@pytest.mark.parametrize("door", [parse, parse_expression, symbols, read_literal])
def test_what_is_no_python_is_one_kind_of_error(door: Callable[[str], object], text: str) -> None:
    with pytest.raises(NotPython if door is not read_literal else ValueError):
        door(text)
