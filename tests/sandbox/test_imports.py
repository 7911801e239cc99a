"""What the sandbox may import: light outside, nothing but the standard library inside."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import whetstone.sandbox
from whetstone.sandbox.zygote.syscall_numbers import TABLES

FOLDER = Path(whetstone.sandbox.__file__).parent
INSIDE = [*(FOLDER / "zygote").glob("*.py")]


@pytest.mark.process
def test_importing_the_sandbox_brings_no_torch_and_no_numpy():
    check = "import sys\nfrom whetstone.sandbox import *\nassert not {'torch', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.mark.parametrize("path", INSIDE, ids=lambda path: path.name)
def test_the_inside_needs_the_standard_library_alone(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module or ""]
        else:
            continue
        assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names


@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "aarch64"])
def test_no_number_stands_for_two_calls(column):
    names = [name for table in TABLES.values() for name in table]
    assert len(set(names)) == len(names)
    rows = [row for table in TABLES.values() for row in table.values()]
    numbers = [row[column] for row in rows if row[column] is not None]
    assert len(set(numbers)) == len(numbers)
