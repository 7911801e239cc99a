"""Programs with known verdicts, correct and wrong, in fixed proportions (``mix.toml``)."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Any

from msgspec import Struct

from whetstone.core.problem import Problem, problem_from
from whetstone.judge import Program, Verdict

# The CPU limit of every case in seconds. It is small, so that endless programs do not dominate the time.
CPU_S = 0.5
_LIMITS = {"cpu_s": CPU_S, "memory_mb": 192, "output_mb": 1}
_COUNTED_LINES = 100_000


class KnownProgram(Struct, frozen=True):
    """A program with its permitted verdicts: one, except for programs that exceed several limits."""

    name: str
    share: int
    """The number of programs of this sort among 1,000 programs of the mix."""
    problem: Problem
    program: Program
    verdicts: tuple[Verdict, ...]


def known_programs() -> list[KnownProgram]:
    """Return one program of each sort, in a fixed order. The shares add up to 1,000."""
    counted = "\\n".join(map(str, range(_COUNTED_LINES)))
    text = (resources.files("whetstone_exam.load") / "mix.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text.replace('"COUNTED"', f'"{counted}"'))
    return [_known_program(described, content["tests"]) for described in content["program"]]


def _known_program(described: dict[str, Any], tests: dict[str, Any]) -> KnownProgram:
    name = described["name"]
    optional = {key: described[key] for key in ("checker", "compare") if key in described}
    problem = {"id": f"stress/{name}", "statement": "", "tests": tests[described["tests"]]}
    return KnownProgram(
        name,
        described["share"],
        problem_from({**problem, "limits": _LIMITS, **optional}),
        Program("python", described["source"]),
        tuple(map(Verdict, described.get("verdicts", ["accepted"]))),
    )


def mix(count: int, seed: int = 0, programs: list[KnownProgram] | None = None) -> Iterator[KnownProgram]:
    """Yield ``count`` programs (of ``programs``, or of all sorts) by their shares, in a seeded order."""
    sorts = programs or known_programs()
    rng = random.Random(seed)
    for _ in range(count):
        yield rng.choices(sorts, [known.share for known in sorts])[0]
