"""Hidden tests that code without a solution passes seal no task."""

from __future__ import annotations

from collections.abc import Generator

import msgspec
import pytest

from tests.judge.repository_tasks import make_task, pytest_environment
from whetstone.judge.repository.grader import RepositoryGrader
from whetstone.judge.repository.task import RepositoryTask
from whetstone_curation.repositories.trivial_code import sealed_tests

PATH, TESTS = "src/barrels.py", "tests/test_barrels.py"
SPELL = "def spell(number): return f'barrel {number * 7}'\n"
# For each function: its right body, its test, and whether the test needs what the body computes.
ROWS: dict[str, tuple[str, str, bool]] = {
    "truth_before_value_of_other_code": (
        "return given > 3",
        "assert solve(4)\n    assert spell(11) == 'barrel 77'",
        False,
    ),
    "truth_before_own_value": (
        "return given * 9",
        "assert solve(4)\n    assert solve(11) == 99",
        True,
    ),
    "exception_before_value_of_other_code": (
        "raise ValueError(given)",
        "with pytest.raises(ValueError, match='4'):\n        solve(4)\n    assert spell(11) == 'barrel 77'",
        False,
    ),
    "own_exception": (
        "raise ValueError(given * 9)",
        "with pytest.raises(ValueError) as caught:\n        solve(11)\n    assert caught.value.args == (99,)",
        True,
    ),
    "exception_of_other_code": (
        "return given > 3",
        "with pytest.raises(AttributeError) as caught:\n        spell('').solve\n"
        "    assert str(caught.value).split()[4] == 'attribute'\n    assert solve(4)",
        False,
    ),
    "unread_result": (
        "return given * 9",
        "result = solve(4)\n    assert spell(11) == 'barrel 77'",
        False,
    ),
    "read_result": (
        "return given * 9",
        "result = solve(4)\n    assert spell(result) == 'barrel 252'",
        True,
    ),
    "argument": ("return dict(given)", "assert solve(dict(a=len(spell(11)) + 60)) == {'a': 69}", False),
    "constant": ("return given < 0", "assert spell(solve(4) + 11) == 'barrel 77'", False),
    "Cellar.method": ("return given * 9", "assert Cellar().method(11) == 99", True),
}


def code(*solved: str) -> bytes:
    """Return the module, in which these functions have their right body."""
    bodies = {name: row[0] if name in solved else "raise NotImplementedError" for name, row in ROWS.items()}
    parts = [SPELL, f"class Cellar:\n    def method(self, given): {bodies.pop('Cellar.method')}\n"]
    parts += [f"def {name}(given): {body}\n" for name, body in bodies.items()]
    return "".join(parts).encode()


@pytest.fixture(scope="module")
def made() -> Generator[tuple[RepositoryGrader, RepositoryTask]]:
    parts = ["import pytest\nfrom barrels import *\n"]
    for name, (_, test, _) in ROWS.items():
        parts.append(f"def test_{name.replace('.', '_')}():\n    {test.replace('solve', name)}\n")
    with pytest_environment() as folder, RepositoryGrader(str(folder)) as grader:
        tests = {TESTS: "".join(parts)}
        yield grader, make_task(grader, {PATH: code()}, {PATH: code(*ROWS)}, tests, ["src"])


@pytest.mark.process
@pytest.mark.parametrize("name", ROWS)
def test_a_test_that_trivial_code_passes_is_not_sealed(
    made: tuple[RepositoryGrader, RepositoryTask], name: str
) -> None:
    grader, task = made
    test = next(each for each in task.fail_to_pass if each.id.endswith(f"test_{name.replace('.', '_')}"))
    one = msgspec.structs.replace(
        task, fail_to_pass=[test], reference={PATH: code(name).decode(), "README.md": "no code"}
    )
    assert test.is_sealed(())
    assert bool(sealed_tests(grader, one, {PATH: code(), "README.md": b"a code base"})) is ROWS[name][2]
