"""The strength of the tests of a problem: the mutants, wrong programs and trivial programs that they reject.

Trivial programs solve nothing. Tests that accept one would reward a model for nothing. They are derived from
the tests: a model also finds a program that prints the most frequent output.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from whetstone.core.asserted_call import NOT_CONSTANT, read_assertion
from whetstone.core.problem import AssertTests, CallTests, InteractiveTests, Problem, Program, StdinTests
from whetstone.core.syntax import parsed
from whetstone.data.validate.cases import test_count
from whetstone.data.validate.mutants import MUTANT_SEED, mutants
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import DefectFlag
from whetstone.data.validate.references import Cost, with_limits
from whetstone.data.validate.runs import Runs
from whetstone.judge import Judgement, Verdict

# A mutant that needs this multiple of the reference's CPU time counts as rejected, but never below the
# second.
_SLOWER = 10
_LEAST_CPU_S = 1.0
# The share of mutants that tests must reject, if at least so many were tried. Some mutants are equivalent to
# the reference, so a higher bound would mark strong tests.
_LEAST_REJECTED = 0.5
_FEWEST_MUTANTS = 4


class Strength(Struct, frozen=True):
    """The number of rejected mutants, of tried ones, and the changes of the accepted ones."""

    killed: int
    tried: int
    survivors: list[str]


def mutant_strength(
    problem: Problem, reference: Program, cost: Cost, runs: Runs, policy: Policy
) -> Strength | None:
    """Try mutants of an accepted Python reference. Return None if none was judged.

    Mutants of interactive problems are not tried. Half of them would wait for an interactor that waits for
    them, and each would occupy a worker until the wall-clock limit.
    """
    if isinstance(problem.tests, InteractiveTests):
        return None
    tried = killed = 0
    survivors: list[str] = []
    limited = _with_short_limit(problem, cost)
    for mutant in mutants(reference.source, policy.mutants, f"{MUTANT_SEED}:{problem.id}"):
        judgement = _run(runs, limited, Program(reference.language, mutant.source))
        # A mutant without a verdict shows nothing about the tests.
        if judgement.verdict is Verdict.JUDGE_ERROR:
            continue
        tried += 1
        killed += not judgement.accepted
        if judgement.accepted:
            survivors.append(mutant.change)
    return Strength(killed, tried, survivors) if tried else None


def strength_flags(strength: Strength) -> Iterator[DefectFlag]:
    """Yield a flag for tests that accept too many mutants."""
    if strength.tried >= _FEWEST_MUTANTS and strength.killed < _LEAST_REJECTED * strength.tried:
        survivors = "; ".join(strength.survivors[:3])
        yield DefectFlag(
            "weak_tests", f"{strength.killed} of {strength.tried} mutants refused; accepted: {survivors}"
        )


def trivial_flags(problem: Problem, cost: Cost, runs: Runs, policy: Policy) -> Iterator[DefectFlag]:
    """Yield a flag for the first trivial program that is accepted.

    With fewer tests than the policy requires, the flag is about their number: for one test, a program that
    prints its answer is no evidence.
    """
    limited = _with_short_limit(problem, cost)
    count = test_count(problem)
    for trivial in trivial_programs(problem):
        if _run(runs, limited, trivial.program).accepted:
            if count < policy.fewest_tests:
                tests = f"{count} test{'s' if count > 1 else ''}"
                yield DefectFlag("too_few_to_judge", f"{tests}, which a program passes that {trivial.does}")
            else:
                yield DefectFlag("trivial_program_passes", f"one that {trivial.does}")
            return


def wrong_flags(problem: Problem, runs: Runs) -> Iterator[DefectFlag]:
    """Yield a flag for known wrong programs that are accepted, and another for those not judged."""
    judged = [(n, runs.run(problem, p, stop_at_first_failure=True)) for n, p in enumerate(problem.wrong)]
    passing = [f"wrong[{n}] passes every test; add a test that it fails" for n, j in judged if j.accepted]
    unjudged = [f"wrong[{n}]: {j.reason}" for n, j in judged if j.verdict is Verdict.JUDGE_ERROR]
    if passing:
        yield DefectFlag("wrong_program_passes", "; ".join(passing))
    if unjudged:
        yield DefectFlag("not_judged", "; ".join(unjudged))


def _with_short_limit(problem: Problem, cost: Cost) -> Problem:
    """Return the problem with a time limit that an endless loop soon reaches."""
    cpu_s = min(problem.limits.cpu_s, max(_SLOWER * cost.cpu_s, _LEAST_CPU_S))
    return with_limits(problem, cpu_s, problem.limits.memory_mb)


def _run(runs: Runs, problem: Problem, program: Program) -> Judgement:
    # One failure rejects a program, and a mutant over the limit counts as rejected in any case.
    return runs.run(problem, program, stop_at_first_failure=True, confirm_time_limit=False)


# In characters. A program with a longer answer in its source is not tried.
_LONGEST_SOURCE = 100_000


class _Trivial(Struct, frozen=True):
    """A program, and a description of it."""

    program: Program
    does: str


def trivial_programs(problem: Problem) -> list[_Trivial]:
    """Return the trivial programs in Python for a problem's kind of tests, each once."""
    tests = problem.tests
    if isinstance(tests, StdinTests):
        found = _printing(tests)
    elif isinstance(tests, CallTests):
        found = _returning(tests)
    elif isinstance(tests, AssertTests):
        found = _defining(problem, tests)
    else:
        # A program that reads would wait for an interactor that also reads, until the wall-clock limit.
        found = iter([("pass\n", "ends at once")])
    # Of equal programs the first description is kept, hence both reversals.
    unique = {source: does for source, does in reversed(list(found)) if len(source) < _LONGEST_SOURCE}
    return [_Trivial(Program("python", source), does) for source, does in reversed(unique.items())]


def _printing(tests: StdinTests) -> Iterator[tuple[str, str]]:
    yield "pass\n", "prints nothing"
    yield "import sys\nsys.stdout.write(sys.stdin.read())\n", "prints its input"
    yield "print(input())\n", "prints the first line of its input"
    for output, which in _answers([case.output for case in tests.cases]):
        yield f"import sys\nsys.stdout.write({output!r})\n", f"always prints {which}"


def _returning(tests: CallTests) -> Iterator[tuple[str, str]]:
    if tests.function is None:
        methods = {name for case in tests.cases for name in (case.operations or [])[1:]}
        body = "".join(f"    def {name}(self, *a, **k):\n        return None\n" for name in sorted(methods))
        start = f"class {tests.class_}:\n    def __init__(self, *a, **k):\n        pass\n"
        yield start + body, "has methods that return None"
        return
    bodies = [("return None", "returns None"), ("return a[0] if a else None", "returns its first argument")]
    expected = [_literal(case.expected) for case in tests.cases]
    bodies += [(f"return {value}", f"always returns {which}") for value, which in _answers(expected)]
    for body, does in bodies:
        if tests.class_ is None:
            yield f"def {tests.function}(*a, **k):\n    {body}\n", does
        else:
            yield (
                f"class {tests.class_}:\n    def {tests.function}(self, *a, **k):\n        {body}\n",
                does,
            )


def _defining(problem: Problem, tests: AssertTests) -> Iterator[tuple[str, str]]:
    """Yield functions with the names that the references define, since the tests call these."""
    names = _names_to_define(problem, tests)
    if not names:
        return
    bodies = [("return None", "returns None"), ("return a[0] if a else None", "returns its first argument")]
    values = ("True", "False", "0", "1", "''", "[]", "float('nan')")
    bodies += [(f"return {value}", f"always returns {value}") for value in values]
    compared = [value for code in tests.asserts or [] if (value := _compared_with(code)) is not None]
    bodies += [(f"return {value}", f"always returns {which}") for value, which in _answers(compared)]
    for body, does in bodies:
        yield "".join(f"def {name}(*a, **k):\n    {body}\n" for name in names), does


def _answers(expected: list[str]) -> Iterator[tuple[str, str]]:
    """The first answer and the most frequent one."""
    if expected:
        yield expected[0], "the first answer"
        yield Counter(expected).most_common(1)[0][0], "the most frequent answer"


def _literal(value: Any) -> str:
    """Return a plain value as Python text; infinities and NaN are not plain."""
    text = repr(value)
    return text if "inf" not in text and "nan" not in text else "None"


def _compared_with(code: str) -> str | None:
    """Return the text of ``value`` in ``assert call == value`` if it is a plain value."""
    tree = parsed(code)
    if tree is None or not tree.body or not isinstance(tree.body[0], ast.Assert):
        return None
    try:
        return _literal(read_assertion(tree.body[0].test).split()[1])
    except NOT_CONSTANT:
        return None


def _names_to_define(problem: Problem, tests: AssertTests) -> list[str]:
    """Return the function names to define: the entry point, or the top-level functions of the references."""
    if tests.entry_point:
        return [tests.entry_point]
    sources = [program.source for program in problem.references] or [problem.starter or ""]
    trees = [tree for source in sources if (tree := parsed(source)) is not None]
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    return list(dict.fromkeys(node.name for node in functions))
