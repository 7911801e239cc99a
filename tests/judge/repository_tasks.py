"""A small repository task, and an environment with pytest, for tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from whetstone.core.problem import Limits
from whetstone.judge.repository.base import base_name
from whetstone.judge.repository.grader import RepositoryGrader, TestCommand, changed_files
from whetstone.judge.repository.observations import TestReport
from whetstone.judge.repository.recording import record_tests
from whetstone.judge.repository.task import RepositoryTask

_PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
LIMITS = Limits(cpu_s=10.0, memory_mb=512.0, output_mb=16.0)

ROMAN = """from .tables import SYMBOLS


def to_roman(number):
    text = ""
    for value, symbol in SYMBOLS:
        while number >= value:
            text += symbol
            number -= value
    return text


def from_roman(text):
    return sum(dict((s, v) for v, s in SYMBOLS)[letter] for letter in text)
"""
TABLES = "SYMBOLS = " + repr(
    [
        *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L")),
        *((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
    ]
)
BROKEN = ROMAN.replace("number >= value", "number > value")
TESTS = """import pytest
from roman import from_roman, to_roman

CASES = [(1, "I"), (4, "IV"), (1994, "MCMXCIV")]


@pytest.mark.parametrize("number, text", CASES)
def test_to_roman(number, text):
    assert to_roman(number) == text


def test_of_several():
    wanted = ["XL", "XC", "CD"]
    assert [to_roman(number) for number in (40, 90, 400)] == wanted


def test_from_roman():
    assert from_roman("MDC") == 1600


def test_unknown_letters():
    with pytest.raises(KeyError):
        from_roman("?")
"""
BASE: dict[str, bytes] = {
    "src/roman/__init__.py": b"from .convert import from_roman, to_roman\n",
    "src/roman/convert.py": BROKEN.encode(),
    "src/roman/tables.py": TABLES.encode(),
    "tests/conftest.py": b"",
    "pyproject.toml": b"[tool.pytest.ini_options]\naddopts = '--strict-markers'\n",
    "README.md": b"Roman numerals.\n",
}
REFERENCE: dict[str, bytes | None] = {"src/roman/convert.py": ROMAN.encode()}


@contextmanager
def pytest_environment() -> Generator[Path]:
    """Yield the folder of a virtual environment that has pytest and nothing else."""
    with tempfile.TemporaryDirectory(prefix="whetstone-test-") as name:
        os.chmod(name, 0o755)
        folder = Path(name) / "repository"
        site = folder / "lib" / "python3.11" / "site-packages"
        site.mkdir(parents=True)
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        for package in _PACKAGES:
            spec = importlib.util.find_spec(package)
            assert spec is not None
            assert spec.origin is not None
            if spec.submodule_search_locations is None:
                shutil.copy(spec.origin, site)
            else:
                without = shutil.ignore_patterns("__pycache__")
                shutil.copytree(Path(spec.origin).parent, site / package, ignore=without)
        yield folder


def make_task(
    grader: RepositoryGrader,
    base: Mapping[str, bytes] = BASE,
    reference: Mapping[str, bytes | None] = REFERENCE,
    tests: Mapping[str, str] = {"tests/test_roman.py": TESTS},
    may_change: Sequence[str] = ("src/roman",),
    limits: Limits = LIMITS,
    *,
    every_test: bool = True,
) -> RepositoryTask:
    """Return a task with these hidden tests. Those that the base fails are ``fail_to_pass``.

    With ``every_test``, all of them must be usable.
    """

    def run(files: Mapping[str, bytes], modules: Mapping[str, str]) -> TestReport:
        return grader.run_tests(files, modules, TestCommand([*modules], ["src"]), limits)[1]

    solved = changed_files(base, reference)
    recorded = record_tests(tests, lambda modules: run(solved, modules))
    assert not (every_test and recorded.dropped), recorded.dropped
    before = run(base, recorded.modules)
    failing = [test for test in recorded.tests if test.failure(before.runs.get(test.id, ()))]
    return RepositoryTask(
        id="task",
        statement="A function returns a wrong value.",
        base=base_name(base),
        may_change=[*may_change],
        protected=["tests"],
        tests=recorded.modules,
        fail_to_pass=failing,
        pass_to_pass=[test for test in recorded.tests if test not in failing],
        sealed=all(test.is_sealed(before.runs.get(test.id, ())) for test in failing),
        python_path=["src"],
        environment="repository",
        limits=limits,
    )
