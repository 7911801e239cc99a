"""Rules of ``docs/architecture.md``: imports run downward without cycles, most packages import without torch,
and files and functions stay short."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "src").rglob("*.py"))
}
PAGE = (ROOT / "docs" / "architecture.md").read_text().partition("## Import layers")[2]
LAYERS = [
    line.partition(":")[0].split() for line in PAGE.partition("```\n")[2].partition("```")[0].splitlines()
]
LAYER_OF = {package: number for number, packages in enumerate(LAYERS) for package in packages}
WITHOUT_TORCH = {
    "core",
    "sandbox",
    "judge",
    "service",
    "data",
    "environments",
    "rollout",
    "report",
    "integrations",
    "cli",
}
"""Packages that do not import torch. The ``settings`` modules of the other packages do not either."""
LIGHT_MODULES = (
    "whetstone.run.preflight",
    "whetstone.run.roles.single_host",
    "whetstone.rollout.service.client",
    "whetstone.run.roles.status",
    "whetstone.testing.attacks",
    "whetstone_exam.load",
)
"""Other modules, and packages with all their modules, that do not import torch."""
OPTIONAL = {path.name: path for path in sorted((ROOT / "packages").glob("*/src/*"))}
"""The optional packages beside ``whetstone``, and their folders."""
LONGEST_FILE, LONGEST_FUNCTION = 440, 70
"""In lines. A function's signature counts."""


def imports(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield the whetstone modules that a module imports anywhere, or names in a string for ``importlib``."""
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


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of every module. Only the process that runs these tests parses them."""
    return {name: ast.parse(path.read_text()) for name, path in FILES.items()}


@cache
def graph() -> dict[str, set[str]]:
    """Return the imports without the package ``whetstone``, whose public names are imported on first use."""
    return {name: set(imports(name, tree)) for name, tree in trees().items() if name != "whetstone"}


def package_of(module: str) -> str:
    """Return the name below ``whetstone``; the package ``whetstone`` itself has none."""
    return [*module.split("."), ""][1]


def upward(importing: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports of a package on the same layer or above."""
    return {
        (name, other)
        for name, others in importing.items()
        for other in others
        if package_of(name) != package_of(other) and LAYER_OF[package_of(name)] <= LAYER_OF[package_of(other)]
    }


def test_every_package_has_a_layer() -> None:
    packages = {package_of(name) for name in FILES} - {""}
    assert packages == LAYER_OF.keys()


def test_imports_run_downward_between_packages() -> None:
    assert upward(graph()) == set()


def test_no_cycle_between_modules() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


def test_no_module_imports_an_optional_package() -> None:
    importing = [
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(package in ast.unparse(node) for package in OPTIONAL)
    ]
    assert importing == []


def test_an_upward_import_is_found_anywhere_in_a_module() -> None:
    for source in (
        "def f():\n    from whetstone.run.recipe import Recipe",
        "if TYPE_CHECKING:\n    import whetstone.run.recipe",
        "import importlib\nimportlib.import_module('whetstone.run.recipe')",
        "from ..run import recipe",
    ):
        found = set(imports("whetstone.trainer.loop", ast.parse(source)))
        assert upward({"whetstone.trainer.loop": found}) == {
            ("whetstone.trainer.loop", "whetstone.run.recipe")
        }


@pytest.mark.process
def test_packages_that_do_not_train_import_without_torch() -> None:
    # A sandbox loads these modules by path, with the standard library only.
    inside = ("whetstone.sandbox.zygote", "whetstone.judge.rpc")
    modules = [
        name
        for name in FILES
        if (
            package_of(name) in WITHOUT_TORCH
            or name.startswith(LIGHT_MODULES)
            or name.endswith((".settings", ".recipe"))
        )
        and not name.startswith(inside)
    ]
    script = (
        "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
        "    assert not {'torch', 'transformers'} & sys.modules.keys(), name"
    )
    done = subprocess.run([sys.executable, "-c", script, *modules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_the_public_names_load_on_first_use_and_without_torch() -> None:
    script = (
        "import sys, whetstone\nassert 'whetstone.judge' not in sys.modules\n"
        "for name in whetstone.__all__:\n    getattr(whetstone, name)\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_files_and_functions_stay_short_enough_to_read() -> None:
    by_path = {FILES[name]: tree for name, tree in trees().items()}
    for folder in OPTIONAL.values():
        by_path |= {path: ast.parse(path.read_text()) for path in folder.rglob("*.py")}
    long = [str(path) for path in by_path if len(path.read_text().splitlines()) > LONGEST_FILE]
    long += [
        f"{path}: {node.name}"
        for path, tree in by_path.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
    ]
    assert long == []
