"""The rules of the house (``docs/architecture.md``): imports run downward and in no circle, what judges and
prepares data loads no torch, and no file or function grows too long to read."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "src").rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}
PAGE = (ROOT / "docs" / "architecture.md").read_text().partition("## Floors")[2].partition("```\n")[2]
FLOORS = [line.partition(":")[0].split() for line in PAGE.partition("```")[0].splitlines()]
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
WITHOUT_TORCH = {
    "sandbox",
    "judge",
    "data",
    "workflow",
    "flow",
    "report",
    "view",
    "attacks",
    "stress",
    "cli",
    "integrations",
}
"""Rooms of which no module loads torch when it is imported; the settings of the others do not either."""
LIGHT = {
    "whetstone.launch.preflight",
    "whetstone.launch.roles.here",
    "whetstone.launch.roles.meeting",
    "whetstone.launch.roles.status",
}
"""Nor do these: the first checks of a run, who starts its roles and meets its flow, who asks what they do."""
LONGEST_FILE, LONGEST_FUNCTION = 440, 50
"""In lines, a function's signature with it."""


def imports(name: str, tree: ast.Module) -> Iterator[str]:
    """Modules of ours that a module imports anywhere, or names in a string for ``importlib``."""
    package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        named: list[str] = []
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            named = [full if (full := f"{base}.{alias.name}") in FILES else base for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = [node.value]
        yield from (module for module in named if module in FILES and module not in (name, "whetstone"))


GRAPH = {name: set(imports(name, tree)) for name, tree in TREES.items()}


def room_of(module: str) -> str:
    return [*module.split("."), ""][1]


def upward(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Imports of a room that is not below."""
    return {
        (name, other)
        for name, others in graph.items()
        for other in others
        if room_of(name) != room_of(other) and FLOOR_OF[room_of(name)] <= FLOOR_OF[room_of(other)]
    }


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(name) for name in FILES} - {""}
    assert rooms == FLOOR_OF.keys()


def test_imports_run_downward_between_rooms() -> None:
    assert upward(GRAPH) == set()


def test_no_circle_between_modules() -> None:
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def test_an_upward_import_is_seen_wherever_it_stands() -> None:
    for source in (
        "def f():\n    from whetstone.launch.recipe import Recipe",
        "if TYPE_CHECKING:\n    import whetstone.launch.recipe",
        "import importlib\nimportlib.import_module('whetstone.launch.recipe')",
        "from ..launch import recipe",
    ):
        found = set(imports("whetstone.trainer.loop", ast.parse(source)))
        assert upward({"whetstone.trainer.loop": found}) == {
            ("whetstone.trainer.loop", "whetstone.launch.recipe")
        }


@pytest.mark.process
def test_what_does_not_train_loads_no_torch() -> None:
    # What runs inside a locked child is loaded there by its path, on the standard library alone.
    inside = ("whetstone.sandbox.zygote", "whetstone.judge.harness")
    rooms = WITHOUT_TORCH.union(*FLOORS[:3])
    modules = [
        name
        for name in FILES
        if (room_of(name) in rooms or name in LIGHT or name.endswith((".settings", ".recipe")))
        and not name.startswith(inside)
    ]
    script = (
        "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
        "    assert not {'torch', 'transformers'} & sys.modules.keys(), name"
    )
    done = subprocess.run([sys.executable, "-c", script, *modules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_files_and_functions_stay_short_enough_to_read() -> None:
    long = [name for name, path in FILES.items() if len(path.read_text().splitlines()) > LONGEST_FILE]
    long += [
        f"{name}: {node.name}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
    ]
    assert long == []
