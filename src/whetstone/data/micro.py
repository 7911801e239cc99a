"""Generated micro-tasks: one expression over a list of integers, described in a few words.

About 700 statements such as ``sum of squares of even xs`` come from some thirty families. They are
small enough for a model of two million parameters, so a whole RL run, with the real judge, fits
into minutes on a laptop. Families that combine a filter, a map and a reducer make the held-out
statements new combinations of known parts, not new kinds of task.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from whetstone.core.problem import CallCase, CallTests, Limits, Problem, Program
from whetstone.core.syntax import parsing

# The prompt template that `micro_examples` writes and a recipe for these tasks has to use.
MICRO_PROMPT = "# {statement}\n"

# The start of the reply (given, not sampled). The model writes the expression, then ends.
MICRO_PREFIX = "def f(xs):\n    return "

HELDOUT_COUNT = 80
# Of the deliberately wrong replies, the share that shows the statement's habitual slip. The rest are right
# answers to another statement of the same family.
SLIP_SHARE = 0.8

_POOL_SIZE = 64
_NUMBERS = range(2, 10)
_MIN_CASES = 4
_MAX_CASES = 6


@dataclass(frozen=True)
class _MicroTask:
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
        # `times 2` would be the same task as `doubles`.
        if k > 2:
            parts.append(_Part(f"{{}} each times {k}", f"x * {k}", f"x + {k}"))
    return parts


Rows = Iterator[tuple[str, str, str]]


def _mapped(head: str, template: str) -> Rows:
    """Yield a row for each map; ``template`` has ``{m}``."""
    for m in _maps():
        yield f"{head} {m.phrase.format('xs')}", template.format(m=m.code), template.format(m=m.slip)


def _filtered(head: str, template: str) -> Rows:
    """Yield a row for each filter; ``template`` has ``{c}``. A head may have a slot for the adjective."""
    for c in _filters():
        yield (
            head.format(a=c.adjective) if "{a}" in head else f"{head} {c.phrase}",
            template.format(c=c.code),
            template.format(c=c.slip),
        )


def _composed(head: str, template: str) -> Rows:
    """Yield a row for each map of a filter. The slip alternates between the filter and the map."""
    for i, m in enumerate(_plain_maps()):
        for j, c in enumerate(_filters()):
            right = template.format(m=m.code, c=c.code)
            in_map = template.format(m=m.slip, c=c.code)
            in_filter = template.format(m=m.code, c=c.slip)
            yield f"{head} {m.phrase.format(c.phrase)}", right, in_map if (i + j) % 2 else in_filter


def _numbered(statement: str, expression: str, slip: str) -> Rows:
    """Yield a row for each number; the templates have ``{k}``."""
    for k in _NUMBERS:
        yield statement.format(k=k), expression.format(k=k), slip.format(k=k)


def _sliced(head: str, template: str) -> Rows:
    """Yield a row for each number and slice; ``template`` has ``{s}``. The slip loses an end."""
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


def _with_arithmetic(head: str, code: str) -> Rows:
    """Yield a row for each number and operation on the value of ``code``."""
    yield from _numbered(f"{head}, plus {{k}}", f"{code} + {{k}}", f"{code} - {{k}}")
    yield from _numbered(f"{head}, minus {{k}}", f"{code} - {{k}}", f"{{k}} - {code}")
    yield from _numbered(f"{head}, times {{k}}", f"{code} * {{k}}", f"{code} + {{k}}")


def _neighbours(head: str, template: str) -> Rows:
    """Yield a row for each way to join an element ``a`` with the next one, ``b``."""
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
    "sum-and": lambda: _with_arithmetic("sum of xs", "sum(xs)"),
    "length-and": lambda: _with_arithmetic("length of xs", "len(xs)"),
    "repeat": lambda: _numbered("xs repeated {k} times", "xs * {k}", "xs + [{k}]"),
    "append": lambda: _numbered("xs with {k} at the end", "xs + [{k}]", "[{k}] + xs"),
}


@functools.cache
def micro_tasks() -> tuple[_MicroTask, ...]:
    """Return all tasks, family by family."""
    return tuple(_MicroTask(family, *row) for family, rows in _FAMILIES.items() for row in rows())


def split_tasks(split: Literal["train", "heldout"]) -> list[_MicroTask]:
    """Return the tasks of one split. Those with the smallest hashes of their statements are held out, so that
    the split depends on neither order nor seed."""
    ranked = sorted((hashlib.sha256(t.statement.encode()).digest(), t.statement) for t in micro_tasks())
    heldout = {statement for _, statement in ranked[:HELDOUT_COUNT]}
    return [t for t in micro_tasks() if (t.statement in heldout) is (split == "heldout")]


def micro_problems(split: Literal["train", "heldout"], seed: int = 0) -> list[Problem]:
    """Return the problems of one split. Each has four to six cases: the empty list and the inputs that reject
    most rivals.

    ``seed`` draws the inputs. Statements, their order and the split do not depend on it. Every problem has
    its reference and, as a wrong program, its slip.
    """
    return [_problem(task, split, _Inputs.drawn(seed)) for task in split_tasks(split)]


def micro_examples(count: int, seed: int, wrong_share: float) -> list[tuple[str, str]]:
    """Return ``count`` pairs (prompt with prefix, reply) of the train split, for supervised warm-up.

    Every statement appears equally often, up to one. A reply is wrong with probability ``wrong_share``. A
    wrong reply never passes the problem's cases.
    """
    # A stream of its own, so that the examples do not change with the inputs.
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
    """Drawn argument lists, the results of each expression on them, and the best test inputs of a task."""

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def drawn(seed: int) -> _Inputs:
        """Return the inputs of a seed, from a cache that also keeps the results of expressions."""
        return _Inputs(seed)

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"micro-inputs-{seed}")
        # Values are near the numbers of the statements. One-element lists hit every boundary, which
        # distinguishes `>` from `>=`. Pairs distinguish counting from testing.
        self.pool = [[rng.randint(-4, 12) for _ in range(rng.randint(2, 12))] for _ in range(_POOL_SIZE)]
        self.pool += [[], *([k] for k in range(-2, 11)), *([k, k] for k in _NUMBERS)]
        self._outcomes: dict[str, list[object]] = {}
        self._chosen: dict[str, list[int]] = {}

    def outcomes(self, expression: str) -> list[object]:
        """Return the results of one generated expression on every input of the pool."""
        if expression not in self._outcomes:
            self._outcomes[expression] = _results(expression, self.pool)
        return self._outcomes[expression]

    def chosen(self, task: _MicroTask) -> list[int]:
        """Return the empty list, an input that rejects the slip, and those that reject the most other
        rivals."""
        if task.statement not in self._chosen:
            self._chosen[task.statement] = self._choose(task)
        return self._chosen[task.statement]

    def _choose(self, task: _MicroTask) -> list[int]:
        right, slip = self.outcomes(task.expression), self.outcomes(task.slip)
        remaining = [self.outcomes(rival) for rival in _rivals(task)]
        chosen: list[int] = []
        best = self.pool.index([])

        def score(index: int) -> tuple[bool, int]:
            told = sum(r[index] != right[index] for r in remaining)
            return slip in remaining and slip[index] != right[index], told

        while len(chosen) < _MIN_CASES or (remaining and len(chosen) < _MAX_CASES):
            chosen.append(best)
            remaining = [r for r in remaining if r[best] == right[best]]
            # Greedy: each case rejects as many of the remaining rivals as possible.
            best = max((i for i in range(len(self.pool)) if i not in chosen), key=score)
        return chosen

    def fails(self, task: _MicroTask, expression: str) -> bool:
        """Return whether the task's cases reject ``expression``, by value as the judge compares
        (True is 1)."""
        got, right = self.outcomes(expression), self.outcomes(task.expression)
        return any(got[i] != right[i] for i in self.chosen(task))


@functools.cache
def siblings(family: str) -> tuple[_MicroTask, ...]:
    """Return the tasks of a family."""
    return tuple(t for t in micro_tasks() if t.family == family)


def _results(expression: str, pool: list[list[int]]) -> list[object]:
    with parsing():
        code = compile(expression, "<micro-task>", "eval")
    return [eval(code, {"xs": list(xs)}) for xs in pool]


def _rivals(task: _MicroTask) -> list[str]:
    """Return near misses that the cases must reject: the slip, and the expressions of the siblings."""
    return [task.slip, *(t.expression for t in siblings(task.family) if t is not task)]


def _wrong_reply(task: _MicroTask, inputs: _Inputs, rng: random.Random) -> str:
    if rng.random() < SLIP_SHARE and inputs.fails(task, task.slip):
        return task.slip
    while True:
        reply = rng.choice(_rivals(task))
        if inputs.fails(task, reply):
            return reply


def _problem(task: _MicroTask, split: str, inputs: _Inputs) -> Problem:
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


# The prompt of the verifier in a recipe for these tasks.
MICRO_VERIFIER_PROMPT = "# {statement}\n{program}\n"

# The given start of its reply. The model continues with the list and the result of the task.
MICRO_VERIFIER_PREFIX = '{"inputs": [[['

_POOL = 400


def micro_case_examples(count: int, seed: int, wrong_share: float) -> list[tuple[str, str]]:
    """Return ``count`` pairs (prompt with prefix, reply) of the train split: a program, and one case for its
    task.

    Half of the programs are right, the others are near misses. With probability ``wrong_share``, the output
    of a case is that of a near miss. Inputs have up to three numbers.
    """
    rng = random.Random(f"micro-cases-{seed}")
    pool = _inputs(seed)
    tasks = split_tasks("train")
    examples: list[tuple[str, str]] = []
    while len(examples) < count:
        for task in rng.sample(tasks, min(len(tasks), count - len(examples))):
            program = task.expression if rng.random() < 0.5 else rng.choice(_rivals(task))
            place = rng.randrange(len(pool))
            told = rng.choice(_rivals(task)) if rng.random() < wrong_share else task.expression
            program_text = MICRO_PREFIX + program
            prompt = MICRO_VERIFIER_PROMPT.format(statement=task.statement, program=program_text)
            reply = _reply(pool[place], _outcomes(told, seed)[place])
            examples.append((prompt + MICRO_VERIFIER_PREFIX, reply))
    return examples


def _reply(given: list[int], outcome: object) -> str:
    return f'{json.dumps(given)[1:]}]], "outputs": [{json.dumps(outcome)}]}}'


@lru_cache(maxsize=2)
def _inputs(seed: int) -> list[list[int]]:
    rng = random.Random(f"micro-case-inputs-{seed}")
    return [[rng.randint(-4, 12) for _ in range(rng.randint(0, 3))] for _ in range(_POOL)]


@lru_cache(maxsize=4096)
def _outcomes(expression: str, seed: int) -> list[object]:
    """Return the results of one generated expression on every input."""
    return _results(expression, _inputs(seed))
