"""Makes a set of small repository tasks: modules of two lines, one of which is wrong, and hidden tests.

    whetstone judge environment create repairs pytest
    python examples/repairs/make_repairs.py sets/repairs

The statement says what the module should compute. The wrong line has another operator, a constant that is off
by one, or exchanged variables. The modules of the two splits have different names and statements.
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

WORDS = {"+": "plus", "-": "minus"}
CONSTANTS = range(2, 10)
INPUTS = [(11, 230), (401, 17), (350, 62)]
LIMITS = Limits(cpu_s=5.0, memory_mb=256.0, output_mb=1.0)


Parts = tuple[str, str, int, str, str, int]
"""The first variable, an operator, a factor, the second variable, an operator, and a constant."""


def line_of(parts: Parts) -> str:
    """Return the expression of a module."""
    first, operator, factor, second, last, constant = parts
    return f"{first} {operator} {factor} * {second} {last} {constant}"


def statement_of(name: str, parts: Parts) -> str:
    """Return the statement of a task."""
    first, operator, factor, second, last, constant = parts
    return f"{name}: {first} {WORDS[operator]} {factor} times {second} {WORDS[last]} {constant}"


def wrong_parts(parts: Parts) -> list[Parts]:
    """Return parts with one error."""
    first, operator, factor, second, last, constant = parts
    other = {"+": "-", "-": "+"}
    return [
        (first, other[operator], factor, second, last, constant),
        (first, operator, factor, second, other[last], constant),
        (first, operator, factor + 1, second, last, constant),
        (first, operator, factor, second, last, constant + 1),
        (second, operator, factor, first, last, constant),
    ]


def source(parts: Parts) -> bytes:
    """Return a module."""
    return f"def f(x, y):\n    return {line_of(parts)}\n".encode()


def test_of(name: str, parts: Parts) -> str:
    """Return the test module of a task."""
    lines = [f"from {name} import f", "", "", f"def test_{name}():"]
    for x, y in INPUTS:
        lines.append(f"    assert f({x}, {y}) == {eval(line_of(parts), {'x': x, 'y': y})}")
    return "\n".join([*lines, ""])


def make(
    train: int, heldout: int, seed: int, environment: str
) -> list[tuple[RepositoryTask, dict[str, bytes]]]:
    """Return the tasks, each with its code base. All tests are recorded in one run."""
    rng = random.Random(seed)
    pairs = [("x", "y"), ("y", "x")]
    every = [
        (first, operator, factor, second, last, constant)
        for first, second in pairs
        for operator, factor, last, constant in itertools.product(WORDS, CONSTANTS, WORDS, CONSTANTS)
    ]
    numbers = rng.sample(range(100, 1000), train + heldout)
    chosen = {
        f"r{number}": parts for number, parts in zip(numbers, rng.sample(every, len(numbers)), strict=True)
    }
    right = {f"{name}.py": source(parts) for name, parts in chosen.items()}
    wrong = {f"{name}.py": source(rng.choice(wrong_parts(parts))) for name, parts in chosen.items()}
    tests = {f"tests/test_{name}.py": test_of(name, parts) for name, parts in chosen.items()}
    command = TestCommand([*tests])
    limits = Limits(cpu_s=60.0, memory_mb=1024.0, output_mb=16.0)
    with RepositoryGrader(environment) as grader:
        recorded = record_tests(tests, lambda modules: grader.run_tests(right, modules, command, limits)[1])
        before = grader.run_tests(wrong, recorded.modules, command, limits)[1]
    expected = {test.id.partition("::")[0]: test for test in recorded.tests}
    made: list[tuple[RepositoryTask, dict[str, bytes]]] = []
    for index, (name, parts) in enumerate(chosen.items()):
        file, module = f"{name}.py", f"tests/test_{name}.py"
        test = expected.get(module)
        if test is None or not test.is_sealed(before.runs.get(test.id, ())):
            continue
        base = {file: wrong[file]}
        task = RepositoryTask(
            id=f"repairs/{name}",
            statement=statement_of(name, parts),
            base=base_name(base),
            may_change=[file],
            tests={module: recorded.modules[module]},
            fail_to_pass=[test],
            sealed=True,
            environment=environment,
            limits=LIMITS,
            reference={file: right[file].decode()},
            source="repairs",
            meta={"split": "train" if index < train else "validation"},
        )
        made.append((task, base))
    return made


def main() -> None:
    """Write the set."""
    parser = argparse.ArgumentParser(description="Make a set of small repository tasks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=160)
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
