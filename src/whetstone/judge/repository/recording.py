"""Record what the hidden tests of a task observe of the reference, and so find what a right change gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from whetstone.judge.repository.assertions import Tolerance
from whetstone.judge.repository.observations import (
    PASSED,
    ExpectedObservation,
    ExpectedTest,
    TestReport,
    TestRun,
)
from whetstone.judge.repository.sealing import NotSealable, SealedModule, seal_module
from whetstone.judge.repository.telling import ShownValues

RunTests = Callable[[Mapping[str, str]], TestReport]
"""Writes test modules by path into a fresh workspace with the reference, and runs them."""


@dataclass(frozen=True)
class RecordedTests:
    """The sealed test modules by path, the tests that passed in every run, and why others are missing."""

    modules: dict[str, str]
    tests: list[ExpectedTest]
    dropped: dict[str, str]


def record_tests(sources: Mapping[str, str], run: RunTests, *, repeats: int = 2) -> RecordedTests:
    """Seal test modules and record their tests.

    An assertion whose values cannot be compared outside is opened: it reports only whether it is true. The
    sealed modules then run ``repeats`` times. A test that is not right each time is dropped. Modules that
    cannot be sealed are left out; ``dropped`` names them.
    """
    dropped: dict[str, str] = {}

    def record(opened: frozenset[int]) -> tuple[dict[str, SealedModule], TestReport]:
        modules = _seal(sources, opened, dropped)
        return modules, run({path: module.recording for path, module in modules.items()})

    modules, report = record(frozenset())
    tolerances = {hole: value for module in modules.values() for hole, value in module.tolerances.items()}
    opened = frozenset(
        seen.hole
        for runs in report.runs.values()
        for each in runs
        for seen in each.observations
        if not isinstance(seen.data, bool) and ExpectedObservation.recorded(seen, tolerances) is None
    )
    if opened:
        modules, report = record(opened)
    for error in report.errors:
        dropped[error.partition(":")[0]] = error
    tests: list[ExpectedTest] = []
    for name, runs in report.runs.items():
        found = _expected(name, runs, tolerances)
        if isinstance(found, ExpectedTest):
            tests.append(found)
        else:
            dropped[name] = found
    sealed = {path: module.sealed for path, module in modules.items()}
    for _ in range(repeats if tests else 0):
        confirmed = run(sealed)
        failures = {test.id: test.failure(confirmed.runs.get(test.id, ())) for test in tests}
        dropped.update({name: f"sealed: {why}" for name, why in failures.items() if why})
        tests = [test for test in tests if not failures[test.id]]
    shown = ShownValues(sealed.values())
    marked = [
        ExpectedTest(test.id, [replace(each, is_telling=each.is_hidden(shown)) for each in test.observations])
        for test in tests
    ]
    return RecordedTests(sealed, marked, dropped)


def _seal(
    sources: Mapping[str, str], opened: frozenset[int], dropped: dict[str, str]
) -> dict[str, SealedModule]:
    modules: dict[str, SealedModule] = {}
    hole = 0
    for path, source in sources.items():
        try:
            modules[path] = seal_module(source, first_hole=hole, opened=opened)
        except NotSealable as error:
            dropped[path] = str(error)
        else:
            hole += modules[path].holes
    return modules


def _expected(name: str, runs: list[TestRun], tolerances: Mapping[int, Tolerance]) -> ExpectedTest | str:
    """Return a test as its recording shows it, or the reason why it is dropped."""
    if len(runs) != 1:
        return "several tests have this id"
    [run] = runs
    if run.outcome != PASSED:
        return f"the test {run.outcome or 'did not end'} with the reference"
    observations: list[ExpectedObservation] = []
    for seen in run.observations:
        found = ExpectedObservation.recorded(seen, tolerances)
        if found is None:
            kind = "a truth value" if isinstance(seen.data, bool) else "a value"
            return f"an assertion differs from its expected value: {kind}"
        observations.append(found)
    return ExpectedTest(name, observations)
