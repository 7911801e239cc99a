"""A search for replies that cost more time than their length allows.

A shape is a beginning, one or two repeated units and an end, each of a few tokens. The search changes the
dearest shapes that it knows and keeps the results that are dearer. ``python -m tests.judge.reply_search
SECONDS SEED`` runs it and prints what it found.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tests.beside import data_beside
from tests.judge.judge_problems import call_problem
from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Problem, problem_from
from whetstone.environments.generated_cases import InvalidCases, read_cases
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import program_of
from whetstone.judge.extract import answer_part, extract_program, strip_thinking
from whetstone.judge.languages.table import java_names

DATA = data_beside(__file__)

PROBLEM = problem_from(call_problem("f", ([1], 2)))
COMPLETED = Problem(
    "c",
    "",
    AssertTests(asserts=["f(1)"], entry_point="f"),
    starter="def f(x):\n",
    meta={COMPLETES_STARTER: True},
)
_PLAIN = EnvironmentSection()
_FORMS = EnvironmentSection(answer_format="think_answer")


def _read_cases(reply: str) -> None:
    with suppress(InvalidCases):
        read_cases(reply, PROBLEM, count=2, most_bytes=1000)


READERS: dict[str, Callable[[str], object]] = {
    "strip_thinking": strip_thinking,
    "answer_part": answer_part,
    "called": lambda reply: extract_program(reply, names=("f",)),
    "reading": extract_program,
    "last_fence": lambda reply: extract_program(reply, "last_fence"),
    "all_fences": lambda reply: extract_program(reply, "all_fences"),
    "cpp": lambda reply: extract_program(reply, language="cpp"),
    "rust": lambda reply: extract_program(reply, language="rust"),
    "java": java_names,
    "think_answer": lambda reply: program_of(PROBLEM, _FORMS, reply),
    "plain": lambda reply: program_of(PROBLEM, _PLAIN, reply),
    "completed": lambda reply: program_of(COMPLETED, _PLAIN, reply),
    "cases": _read_cases,
}
"""All that is done with the text of a reply on the trusted side, by name."""

# In a repeated unit, @ stands for the number of the repetition.
TOKENS = DATA["tokens"]


@dataclass(frozen=True)
class Shape:
    """A family of replies of any length. ``stairs`` indents each repetition by one more blank."""

    before: tuple[str, ...]
    units: tuple[tuple[str, ...], ...]
    after: tuple[str, ...]
    stairs: bool = False

    def text(self, length: int) -> str:
        """Return the reply of about ``length`` characters."""
        return (
            "".join(self.before)
            + "".join(self._repeated("".join(unit), length // len(self.units)) for unit in self.units)
            + "".join(self.after)
        )

    def _repeated(self, unit: str, length: int) -> str:
        if self.stairs:
            count = min(int((2 * length) ** 0.5), length // max(1, len(unit)))
            return "".join(" " * number + unit.replace("@", str(number)) for number in range(count))
        if "@" not in unit:
            return unit * (length // max(1, len(unit)))
        return "".join(unit.replace("@", str(number)) for number in range(length // (len(unit) + 4)))


def random_shape(rng: random.Random) -> Shape:
    """Return a shape of a few random tokens."""
    return Shape(
        _some(rng, 0, 3),
        tuple(_some(rng, 1, 4) for _ in range(rng.choice((1, 1, 2)))),
        _some(rng, 0, 3),
        rng.random() < 0.1,
    )


def changed(shape: Shape, rng: random.Random) -> Shape:
    """Return the shape with one random change."""
    parts = [shape.before, *shape.units, shape.after]
    at = rng.randrange(len(parts))
    part = list(parts[at])
    place = rng.randrange(len(part) + 1)
    if part and rng.random() < 0.4:
        part[place % len(part)] = rng.choice(TOKENS)
    elif len(part) > 1 and rng.random() < 0.4:
        del part[place % len(part)]
    else:
        part.insert(place, rng.choice(TOKENS))
    parts[at] = tuple(part[:6])
    units = tuple(unit or (rng.choice(TOKENS),) for unit in parts[1:-1])
    if rng.random() < 0.1:
        units = units[:1] if len(units) > 1 else (*units, _some(rng, 1, 3))
    stairs = shape.stairs if rng.random() < 0.95 else not shape.stairs
    return Shape(parts[0], units, parts[-1], stairs)


def _some(rng: random.Random, least: int, most: int) -> tuple[str, ...]:
    return tuple(rng.choices(TOKENS, k=rng.randint(least, most)))


def cpu_s(work: Callable[[], object], times: int = 1) -> float:
    """Return the least of several CPU times of this thread, in seconds."""
    gc.freeze()  # a judge has no test suite on its heap for the collector to look through
    try:
        return min(_once(work) for _ in range(times))
    finally:
        gc.unfreeze()


def _once(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def search(
    seconds: float,
    seed: int,
    length: int,
    survivors: int = 3,
    readers: Mapping[str, Callable[[str], object]] = READERS,
) -> list[tuple[float, str, Shape]]:
    """Search for ``seconds`` of CPU time.

    Return the dearest shapes of each reader with their costs in seconds of CPU time, the dearest first.
    """
    rng = random.Random(seed)
    until = time.process_time() + seconds
    best: dict[str, list[tuple[float, Shape]]] = {name: [] for name in readers}
    while time.process_time() < until:
        known = best[rng.choice([*readers])]
        shape = changed(rng.choice(known)[1], rng) if known and rng.random() < 0.7 else random_shape(rng)
        text = shape.text(length)
        for name, read in readers.items():
            kept = best[name]
            cost = cpu_s(partial(read, text))
            if len(kept) < survivors or cost > kept[-1][0]:
                twins = [found for found in kept if found[1].units == shape.units]
                if all(cost > twin[0] for twin in twins):
                    kept[:] = [found for found in kept if found not in twins] + [(cost, shape)]
                    kept.sort(key=lambda found: -found[0])
                    del kept[survivors:]
    return sorted(((cost, name, shape) for name in best for cost, shape in best[name]), key=lambda f: -f[0])


if __name__ == "__main__":
    for _, name, shape in search(float(sys.argv[1]), int(sys.argv[2]), 20_000):
        costs = [cpu_s(partial(READERS[name], shape.text(n)), 2) for n in (25_000, 50_000, 100_000)]
        print(name, *(f"{cost:.3f}" for cost in costs), shape, flush=True)
