"""Generated micro-tasks: one expression over a list of integers, described in a few words.

About 700 statements such as ``sum of squares of even xs`` come from some thirty families. They are
small enough for a model of two million parameters, so a whole RL run, with the real judge, fits
into minutes on a laptop. Families that combine a filter, a map and a reducer make the held-out
statements new combinations of known parts, not new kinds of task.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from whetstone.problem import CallCase, CallTests, Limits, Problem, Program
from whetstone.syntax import parsing

MICRO_PROMPT = "# {statement}\n"
"""The prompt template that ``micro_examples`` writes and a recipe for these tasks has to use."""

MICRO_PREFIX = "def f(xs):\n    return "
"""What the reply starts with (given, not sampled). The model writes the expression, then ends."""

HELDOUT_COUNT = 80
SLIP_SHARE = 0.8
"""Of the deliberately wrong replies, the share that shows the statement's habitual slip. The rest
are right answers to another statement of the same family."""

_POOL_SIZE = 64
_NUMBERS = range(2, 10)
_MIN_CASES = 4
_MAX_CASES = 6


@dataclass(frozen=True)
class MicroTask:
    """A statement, the expression that answers it, and a slip: the same near miss every time."""

    family: str
    statement: str
    expression: str
    slip: str


@dataclass(frozen=True)
class _Part:
    """A phrase, its code over ``x``, and a near miss of the code.

    A filter's phrase names the elements it keeps, and ``adjective`` says it of one of them; a map's
    phrase has a slot for the elements.
    """

    phrase: str
    code: str
    slip: str
    adjective: str = ""


def _filters() -> list[_Part]:
    adjectives = [
        ("even", "x % 2 == 0", "x % 2 == 1"),
        ("odd", "x % 2 == 1", "x % 2 == 0"),
        ("positive", "x > 0", "x < 0"),
        ("negative", "x < 0", "x > 0"),
    ]
    parts = [_Part(f"{word} xs", code, slip, word) for word, code, slip in adjectives]
    for k in range(1, 10):
        parts += [
            _Part(f"xs above {k}", f"x > {k}", f"x >= {k}", f"above {k}"),
            _Part(f"xs below {k}", f"x < {k}", f"x <= {k}", f"below {k}"),
        ]
    for k in range(3, 7):
        parts.append(_Part(f"xs divisible by {k}", f"x % {k} == 0", f"x % {k} > 0", f"divisible by {k}"))
    return parts


def _plain_maps() -> list[_Part]:
    return [
        _Part("squares of {}", "x * x", "x + x"),
        _Part("doubles of {}", "x * 2", "x ** 2"),
        _Part("negations of {}", "-x", "x"),
    ]


def _maps() -> list[_Part]:
    parts = _plain_maps()
    for k in _NUMBERS:
        parts += [
            _Part(f"{{}} each plus {k}", f"x + {k}", f"x - {k}"),
            _Part(f"{{}} each minus {k}", f"x - {k}", f"{k} - x"),
        ]
        if k > 2:  # times 2 is what doubles are
            parts.append(_Part(f"{{}} each times {k}", f"x * {k}", f"x + {k}"))
    return parts


Rows = Iterator[tuple[str, str, str]]


def _mapped(head: str, template: str) -> Rows:
    """One row for each map; ``template`` holds ``{m}``."""
    for m in _maps():
        yield f"{head} {m.phrase.format('xs')}", template.format(m=m.code), template.format(m=m.slip)


def _filtered(head: str, template: str) -> Rows:
    """One row for each filter; ``template`` holds ``{c}``. A head may have a slot for the adjective."""
    for c in _filters():
        yield (
            head.format(a=c.adjective) if "{a}" in head else f"{head} {c.phrase}",
            template.format(c=c.code),
            template.format(c=c.slip),
        )


def _composed(head: str, template: str) -> Rows:
    """One row for each map of a filter. The slip is in the filter or in the map, by turns."""
    for i, m in enumerate(_plain_maps()):
        for j, c in enumerate(_filters()):
            right = template.format(m=m.code, c=c.code)
            in_map = template.format(m=m.slip, c=c.code)
            in_filter = template.format(m=m.code, c=c.slip)
            yield f"{head} {m.phrase.format(c.phrase)}", right, in_map if (i + j) % 2 else in_filter


def _numbered(statement: str, expression: str, slip: str) -> Rows:
    """One row for each number; the templates hold ``{k}``."""
    for k in _NUMBERS:
        yield statement.format(k=k), expression.format(k=k), slip.format(k=k)


def _sliced(head: str, template: str) -> Rows:
    """One row for each number and slice; ``template`` holds ``{s}``. The slip loses an end."""
    slices = [
        ("first {k} xs", "xs[:{k}]", "xs[1:{k}]"),
        ("last {k} xs", "xs[-{k}:]", "xs[-{k}:-1]"),
        ("xs without the first {k}", "xs[{k}:]", "xs[{k}:-1]"),
        ("xs without the last {k}", "xs[:-{k}]", "xs[1:-{k}]"),
        ("xs at indices divisible by {k}", "xs[::{k}]", "xs[1::{k}]"),
        ("first {k} of sorted xs", "sorted(xs)[:{k}]", "sorted(xs)[1:{k}]"),
        ("last {k} of sorted xs", "sorted(xs)[-{k}:]", "sorted(xs)[-{k}:-1]"),
    ]
    for phrase, code, slip in slices:
        yield from _numbered(f"{head} {phrase}", template.format(s=code), template.format(s=slip))


def _reckoned(head: str, code: str) -> Rows:
    """One row for each number and operation on what ``code`` gives."""
    yield from _numbered(f"{head}, plus {{k}}", f"{code} + {{k}}", f"{code} - {{k}}")
    yield from _numbered(f"{head}, minus {{k}}", f"{code} - {{k}}", f"{{k}} - {code}")
    yield from _numbered(f"{head}, times {{k}}", f"{code} * {{k}}", f"{code} + {{k}}")


def _neighbours(head: str, template: str) -> Rows:
    """One row for each way to join an element ``a`` with the next one, ``b``."""
    joins = [
        ("sums", "a + b", "a * b"),
        ("products", "a * b", "a + b"),
        ("differences", "b - a", "a - b"),
        ("maxima", "max(a, b)", "min(a, b)"),
        ("minima", "min(a, b)", "max(a, b)"),
    ]
    for name, code, slip in joins:
        yield f"{head} {name} of neighbours in xs", template.format(p=code), template.format(p=slip)


_FAMILIES: dict[str, Callable[[], Rows]] = {
    "list-map": lambda: _mapped("list of", "[{m} for x in xs]"),
    "sum-map": lambda: _mapped("sum of", "sum({m} for x in xs)"),
    "max-map": lambda: _mapped("largest or 0 of", "max([{m} for x in xs], default=0)"),
    "list-filter": lambda: _filtered("list of", "[x for x in xs if {c}]"),
    "sum-filter": lambda: _filtered("sum of", "sum(x for x in xs if {c})"),
    "count-filter": lambda: _filtered("number of", "sum({c} for x in xs)"),
    "min-filter": lambda: _filtered("smallest or 0 of", "min([x for x in xs if {c}], default=0)"),
    "any-filter": lambda: _filtered("whether some x is {a}", "any({c} for x in xs)"),
    "all-filter": lambda: _filtered("whether every x is {a}", "all({c} for x in xs)"),
    "list-map-filter": lambda: _composed("list of", "[{m} for x in xs if {c}]"),
    "sum-map-filter": lambda: _composed("sum of", "sum({m} for x in xs if {c})"),
    "max-map-filter": lambda: _composed("largest or 0 of", "max([{m} for x in xs if {c}], default=0)"),
    "list-neighbours": lambda: _neighbours("list of", "[{p} for a, b in zip(xs, xs[1:])]"),
    "sum-neighbours": lambda: _neighbours("sum of", "sum({p} for a, b in zip(xs, xs[1:]))"),
    "list-slice": lambda: _sliced("list of", "{s}"),
    "sum-slice": lambda: _sliced("sum of", "sum({s})"),
    "count": lambda: _numbered("how often {k} is in xs", "xs.count({k})", "{k} in xs"),
    "contains": lambda: _numbered("whether {k} is in xs", "{k} in xs", "{k} not in xs"),
    "remove": lambda: _numbered("xs without any {k}", "[x for x in xs if x != {k}]", "xs[{k}:]"),
    "sum-and": lambda: _reckoned("sum of xs", "sum(xs)"),
    "length-and": lambda: _reckoned("length of xs", "len(xs)"),
    "repeat": lambda: _numbered("xs repeated {k} times", "xs * {k}", "xs + [{k}]"),
    "append": lambda: _numbered("xs with {k} at the end", "xs + [{k}]", "[{k}] + xs"),
}


@functools.cache
def micro_tasks() -> tuple[MicroTask, ...]:
    """Every task, family by family."""
    return tuple(MicroTask(family, *row) for family, rows in _FAMILIES.items() for row in rows())


@functools.cache
def _heldout_statements() -> frozenset[str]:
    """The statements with the smallest hashes, so that the split owes nothing to order or seed."""
    ranked = sorted((hashlib.sha256(t.statement.encode()).digest(), t.statement) for t in micro_tasks())
    return frozenset(statement for _, statement in ranked[:HELDOUT_COUNT])


def split_tasks(split: Literal["train", "heldout"]) -> list[MicroTask]:
    """The tasks of one split, which is the same whatever the seed."""
    wanted = split == "heldout"
    return [t for t in micro_tasks() if (t.statement in _heldout_statements()) is wanted]


def micro_problems(split: Literal["train", "heldout"], seed: int = 0) -> list[Problem]:
    """The problems of one split, each with four to six cases: the empty list, and those that tell most.

    ``seed`` draws the inputs; statements, their order and the split do not depend on it. Every
    problem carries its reference and, as a wrong program, its slip.
    """
    return [_problem(task, split, _Inputs.drawn(seed)) for task in split_tasks(split)]


def micro_examples(count: int, seed: int, wrong_share: float) -> list[tuple[str, str]]:
    """``count`` pairs (prompt with prefix, reply) over the train split, for supervised warm-up.

    Every statement appears equally often, up to one. A reply is wrong with probability
    ``wrong_share``; a wrong one never passes the problem's cases.
    """
    rng = random.Random(f"micro-examples-{seed}")
    inputs = _Inputs.drawn(seed)
    tasks = split_tasks("train")
    examples: list[tuple[str, str]] = []
    while len(examples) < count:
        for task in rng.sample(tasks, min(len(tasks), count - len(examples))):
            wrong = rng.random() < wrong_share
            reply = _wrong_reply(task, inputs, rng) if wrong else task.expression
            examples.append((MICRO_PROMPT.format(statement=task.statement) + MICRO_PREFIX, reply))
    return examples


class _Inputs:
    """Drawn argument lists, what each expression makes of them, and which of them test a task best."""

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def drawn(seed: int) -> _Inputs:
        """The inputs of a seed (kept, because outcomes of all expressions are worth keeping)."""
        return _Inputs(seed)

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"micro-inputs-{seed}")
        # Values stay near the numbers of the statements. One-element lists hit every boundary, which
        # is what tells `>` from `>=`; pairs tell how often from whether.
        self.pool = [[rng.randint(-4, 12) for _ in range(rng.randint(2, 12))] for _ in range(_POOL_SIZE)]
        self.pool += [[], *([k] for k in range(-2, 11)), *([k, k] for k in _NUMBERS)]
        self._outcomes: dict[str, list[object]] = {}
        self._chosen: dict[str, list[int]] = {}

    def outcomes(self, expression: str) -> list[object]:
        """What one of our own expressions makes of every input of the pool."""
        if expression not in self._outcomes:
            with parsing():
                code = compile(expression, "<micro-task>", "eval")
            self._outcomes[expression] = [eval(code, {"xs": list(xs)}) for xs in self.pool]
        return self._outcomes[expression]

    def chosen(self, task: MicroTask) -> list[int]:
        """The empty list, an input that tells the slip, and those that tell the most other rivals."""
        if task.statement not in self._chosen:
            self._chosen[task.statement] = self._choose(task)
        return self._chosen[task.statement]

    def _choose(self, task: MicroTask) -> list[int]:
        right, slip = self.outcomes(task.expression), self.outcomes(task.slip)
        alive = [self.outcomes(rival) for rival in _rivals(task)]
        chosen: list[int] = []
        best = self.pool.index([])

        def worth(index: int) -> tuple[bool, int]:
            told = sum(r[index] != right[index] for r in alive)
            return slip in alive and slip[index] != right[index], told

        while len(chosen) < _MIN_CASES or (alive and len(chosen) < _MAX_CASES):
            chosen.append(best)
            alive = [r for r in alive if r[best] == right[best]]
            best = max((i for i in range(len(self.pool)) if i not in chosen), key=worth)
        return chosen

    def fails(self, task: MicroTask, expression: str) -> bool:
        """Whether the task's cases reject ``expression``, by value as the judge compares (True is 1)."""
        got, right = self.outcomes(expression), self.outcomes(task.expression)
        return any(got[i] != right[i] for i in self.chosen(task))


@functools.cache
def siblings(family: str) -> tuple[MicroTask, ...]:
    """The tasks of a family."""
    return tuple(t for t in micro_tasks() if t.family == family)


def _rivals(task: MicroTask) -> list[str]:
    """Near misses that the cases have to reject: the slip, and what the siblings return."""
    return [task.slip, *(t.expression for t in siblings(task.family) if t is not task)]


def _wrong_reply(task: MicroTask, inputs: _Inputs, rng: random.Random) -> str:
    if rng.random() < SLIP_SHARE and inputs.fails(task, task.slip):
        return task.slip
    while True:
        reply = rng.choice(_rivals(task))
        if inputs.fails(task, reply):
            return reply


def _problem(task: MicroTask, split: str, inputs: _Inputs) -> Problem:
    expected = inputs.outcomes(task.expression)
    cases = [CallCase(expected=expected[i], args=[inputs.pool[i]]) for i in inputs.chosen(task)]
    return Problem(
        id=f"micro/{task.statement.replace(' ', '-').replace(',', '')}",
        statement=task.statement,
        tests=CallTests(function="f", cases=cases),
        limits=Limits(cpu_s=2.0, memory_mb=256.0, output_mb=1.0),
        references=[Program("python", MICRO_PREFIX + task.expression + "\n")],
        wrong=[Program("python", MICRO_PREFIX + task.slip + "\n")],
        source=f"micro:{split}",
        meta={"family": task.family},
    )
