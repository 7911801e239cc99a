"""The cache of problems counts the memory that it holds, not the bytes that arrived."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from tests.service.service_process import sum_problem
from whetstone.core.problem import Problem
from whetstone.service.problem_cache import KnownProblems, memory_of

_N = 30_000


def body_of(values: str) -> bytes:
    tests = f'{{"kind": "call", "function": "f", "cases": [{{"args": [{values}], "expected": 1}}]}}'
    return json.dumps({**sum_problem(), "tests": "TESTS"}).replace('"TESTS"', tests).encode()


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "values",
    [
        ",".join(["[]"] * _N),
        ",".join(["{}"] * _N),
        ",".join(['{"a":[0]}'] * _N),
        "[" * 20 + ",".join(["[[]]"] * _N) + "]" * 20,
        ",".join(f"{n}.5" for n in range(_N)),
        ",".join(str(n + 10**6) for n in range(_N)),
        ",".join(f'"{n}"' for n in range(_N)),
        f'"\U0001f600{"a" * 10 * _N}"',
        ",".join(f'{{"{n}":null}}' for n in range(_N)),
    ],
)
def test_the_size_of_a_problem_is_the_memory_that_it_takes(values: str) -> None:
    body = body_of(values)
    gc.collect()
    tracemalloc.start()
    problem = msgspec.json.decode(body, type=Problem)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= memory_of(problem) * 1.1
    assert memory_of(problem) < 3 * taken + 10_000


def test_a_plain_problem_costs_about_its_text() -> None:
    tests = {"kind": "stdin", "cases": [{"input": "a" * 100_000, "output": "b" * 100_000}]}
    problem = msgspec.convert({**sum_problem(), "tests": tests}, Problem)
    assert 200_000 <= memory_of(problem) < 210_000


def test_the_cache_holds_no_more_memory_than_it_may() -> None:
    most = 4 << 20
    cache = KnownProblems(most)
    body = body_of(",".join(["[]"] * 10_000))
    for n in range(40):
        problem: Any = msgspec.json.decode(body, type=Problem)
        cache.add(str(n), memory_of(problem), problem)
    assert 2 <= len(cache) <= most // (56 * 10_000)
    assert cache.held_bytes <= most
    assert cache.named("39")
