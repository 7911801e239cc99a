"""Makes a set of small repository tasks: a module of two lines, one of which is wrong, and hidden tests.

    whetstone judge environment create repairs pytest
    python examples/repairs/make_repairs.py sets/repairs

The statement says what the module should compute. A number of the wrong line is off by one. No task has the
statement of another one.
"""

from __future__ import annotations

import argparse
import itertools
import random
from pathlib import Path

import msgspec

from whetstone.core.problem import Limits
from whetstone.judge.repository.base import base_name, pack_base
from whetstone.judge.repository.grader import RepositoryGrader, TestCommand
from whetstone.judge.repository.recording import record_tests
from whetstone.judge.repository.task import RepositoryTask

FILE = "line.py"
FACTORS = range(10, 100)
CONSTANTS = range(100, 1000)
# No value of a test is a number that another test shows: a sealed task needs a value that nothing shows.
INPUTS = (2300, 4001, 620)
LIMITS = Limits(cpu_s=5.0, memory_mb=256.0, output_mb=1.0)


Parts = tuple[int, int]
"""The factor and the constant of a line."""


def statement_of(parts: Parts) -> str:
    """Return the statement of a task."""
    return f"{parts[0]} times x plus {parts[1]}"


def wrong_parts(parts: Parts) -> list[Parts]:
    """Return parts with one error."""
    factor, constant = parts
    return [(factor + 1, constant), (factor - 1, constant), (factor, constant + 1), (factor, constant - 1)]


def source(parts: Parts) -> bytes:
    """Return a module."""
    return f"def f(x):\n    return {parts[0]} * x + {parts[1]}\n".encode()


def test_of(name: str, parts: Parts) -> str:
    """Return the test module of a task, for a module of that name."""
    lines = [f"from {name} import f", "", "", "def test_f():"]
    lines += [f"    assert f({x}) == {parts[0] * x + parts[1]}" for x in INPUTS]
    return "\n".join([*lines, ""])


def make(
    train: int, heldout: int, seed: int, environment: str
) -> list[tuple[RepositoryTask, dict[str, bytes]]]:
    """Return the tasks, each with its code base. All tests are recorded in one run."""
    rng = random.Random(seed)
    parts = rng.sample(list(itertools.product(FACTORS, CONSTANTS)), train + heldout)
    # All tests are recorded in one run, in which each task has a module of another name.
    chosen = {f"r{number}": each for number, each in enumerate(parts)}
    right = {f"{name}.py": source(each) for name, each in chosen.items()}
    wrong = {f"{name}.py": source(rng.choice(wrong_parts(each))) for name, each in chosen.items()}
    tests = {f"tests/test_{name}.py": test_of(name, each) for name, each in chosen.items()}
    command = TestCommand([*tests])
    limits = Limits(cpu_s=60.0, memory_mb=1024.0, output_mb=16.0)
    with RepositoryGrader(environment) as grader:
        recorded = record_tests(tests, lambda modules: grader.run_tests(right, modules, command, limits)[1])
        before = grader.run_tests(wrong, recorded.modules, command, limits)[1]
    expected = {test.id.partition("::")[0]: test for test in recorded.tests}
    made: list[tuple[RepositoryTask, dict[str, bytes]]] = []
    for index, (name, each) in enumerate(chosen.items()):
        module = f"tests/test_{name}.py"
        test = expected[module]
        base = {FILE: wrong[f"{name}.py"]}
        hidden = recorded.modules[module].replace(f"from {name} import", f"from {Path(FILE).stem} import")
        task = RepositoryTask(
            id=f"repairs/{name}",
            statement=statement_of(each),
            base=base_name(base),
            may_change=[FILE],
            tests={module: hidden},
            fail_to_pass=[test],
            sealed=test.is_sealed(before.runs.get(test.id, ())),
            environment=Path(environment).name,
            limits=LIMITS,
            reference={FILE: source(each).decode()},
            source="repairs",
            meta={"split": "train" if index < train else "validation"},
        )
        made.append((task, base))
    return made


def main() -> None:
    """Write the set."""
    parser = argparse.ArgumentParser(description="Make a set of small repository tasks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=400)
    parser.add_argument("--heldout", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environment", default="repairs")
    given = parser.parse_args()
    made = make(given.train, given.heldout, given.seed, given.environment)
    (given.folder / "bases").mkdir(parents=True, exist_ok=True)
    for task, base in made:
        (given.folder / "bases" / f"{task.base}.tar.gz").write_bytes(pack_base(base))
    lines = (msgspec.json.encode(task) + b"\n" for task, _ in made)
    (given.folder / "tasks.jsonl").write_bytes(b"".join(lines))
    print(f"{len(made)} tasks in {given.folder}")


if __name__ == "__main__":
    main()
