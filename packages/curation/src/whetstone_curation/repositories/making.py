"""Make tasks of a package: change one of its functions so that some of its own tests fail."""

from __future__ import annotations

import ast
import re
import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from whetstone.core.errors import UserError
from whetstone.core.problem import Limits
from whetstone.core.syntax import parse
from whetstone.core.verdict import Verdict
from whetstone.judge.environments.environment import PackageEnvironment
from whetstone.judge.repository.base import Files, base_name
from whetstone.judge.repository.grader import RepositoryGrader
from whetstone.judge.repository.observations import ExpectedTest, TestReport
from whetstone.judge.repository.task import RepositoryTask
from whetstone.sandbox import SandboxFault
from whetstone_curation.repositories.changed_functions import (
    ChangedFunction,
    SourceFunction,
    changed_versions,
    find_functions,
    source_lines,
    without_body,
)
from whetstone_curation.repositories.package_index import Unsuitable
from whetstone_curation.repositories.package_tests import PackageTests, RecordedModule, check_environment
from whetstone_curation.repositories.source_tree import SourceTree
from whetstone_curation.repositories.statements import ExpectedValues, statement_of
from whetstone_curation.repositories.trivial_code import HEADROOM, sealed_tests

# The tests of a task. More of them would make the set large, and decide nothing more.
MOST_TESTS = 100
# Functions that are tried for each task wanted.
_TRIES = 8
TRIVIAL = "code that solves nothing gives each telling value of its tests"


class PackageRecord(Struct, kw_only=True):
    """What was made of a package or a row, for the card. ``dropped``: why it gives no task. The counts of
    dropped tests and functions are by reason. digest: SHA-256 of its archive."""

    package: str
    version: str = ""
    licence: str = ""
    digest: str = ""
    dropped: str = ""
    tests: int = 0
    functions: int = 0
    tasks: int = 0
    seconds: float = 0.0
    dropped_tests: dict[str, int] = field(default_factory=dict[str, int])
    dropped_functions: dict[str, int] = field(default_factory=dict[str, int])


class SetCard(Struct, kw_only=True):
    """What a set contains and how it was made.

    seed: draws the functions and their changes. repeats: how often tests must pass, and how often each task
    is graded. cpu_s, memory_mb: the limits of one run of tests.
    """

    whetstone: str
    environment: str
    tier: str
    seed: int
    repeats: int
    cpu_s: float
    memory_mb: float
    tasks_per_package: int
    tasks: int = 0
    packages: list[PackageRecord] = field(default_factory=list[PackageRecord])


class MadeTask(NamedTuple):
    """A task and its base."""

    task: RepositoryTask
    base: Files


class Outcome(NamedTuple):
    """What tests show of a base. ``sealed``: those that fail and whose reports cannot be forged.
    ``forgeable``: the others that fail."""

    sealed: list[ExpectedTest]
    forgeable: list[ExpectedTest]
    passing: list[ExpectedTest]


def outcome_of(modules: Mapping[str, RecordedModule], report: TestReport) -> Outcome:
    """Sort the tests of modules by a report of the base."""
    outcome = Outcome([], [], [])
    for test in (test for module in modules.values() for test in module.tests):
        runs = report.runs.get(test.id, ())
        if not test.failure(runs):
            outcome.passing.append(test)
        elif test.is_sealed(runs):
            outcome.sealed.append(test)
        else:
            outcome.forgeable.append(test)
    return outcome


class TaskMaker:
    """Makes tasks, as a card says."""

    def __init__(self, grader: RepositoryGrader, environment: PackageEnvironment, card: SetCard) -> None:
        self._grader, self._environment, self._seed = grader, environment, card.seed
        self._most, self._repeats = card.tasks_per_package, card.repeats
        self._limits = Limits(cpu_s=card.cpu_s, memory_mb=card.memory_mb)
        self.stopped = threading.Event()

    def record(self, tree: SourceTree, record: PackageRecord) -> PackageTests:
        """Return the tests that pass every time with a source tree, and count them. Raises Unsuitable."""
        check_environment(tree, self._environment)
        recording = msgspec.structs.replace(self._limits, cpu_s=self._limits.cpu_s / HEADROOM)
        tests = PackageTests(tree, self._grader, recording, self.stopped)
        try:
            tests.record(self._repeats)
        finally:
            record.tests = sum(len(module.tests) for module in tests.modules.values())
            record.dropped_tests = dict(tests.dropped)
        return tests

    def make(self, tree: SourceTree, record: PackageRecord) -> list[MadeTask]:
        """Return the tasks of a package, and count them and what was dropped. Raises Unsuitable."""
        record.version, record.licence, record.digest = tree.version, tree.licence, tree.digest
        tests = self.record(tree, record)
        functions = find_functions(tree.files, tree.roots, f"{self._seed}\0{tree.name}")
        functions = [function for function in functions if not tree.in_tests(function.path)]
        record.functions = len(functions)
        made: list[MadeTask] = []
        reasons: Counter[str] = Counter()
        for function in functions[: _TRIES * self._most]:
            if len(made) == self._most:
                break
            try:
                made.append(self._first_task(tests, function))
            except Unsuitable as error:
                reasons[str(error)] += 1
        record.dropped_functions = dict(reasons)
        return made

    def _first_task(self, tests: PackageTests, function: SourceFunction) -> MadeTask:
        """Return a task of a function by the first change that gives one. Raises Unsuitable."""
        source = tests.tree.files[function.path].decode()
        # Without its body, most tests fail that any other change would make fail.
        emptied = without_body(source, function).text.encode()
        named = _modules_that_name(function, tests.modules)
        _failing_modules(tests, {**tests.tree.files, function.path: emptied}, named)
        reason = Unsuitable("it has no change")
        for version in changed_versions(source, function, f"{self._seed}\0{tests.tree.label}"):
            try:
                return self._task(tests, function, version, named)
            except Unsuitable as error:
                reason = error
        raise reason

    def _task(
        self,
        tests: PackageTests,
        function: SourceFunction,
        version: ChangedFunction,
        named: dict[str, RecordedModule],
    ) -> MadeTask:
        """Return the task of a changed function, which the ``named`` modules name. Raises Unsuitable."""
        tree = tests.tree
        files = {**tree.files, function.path: version.text.encode()}
        failing, sealed = _failing_modules(tests, files, named)
        if len(named) < len(tests.modules):
            failing, sealed = _failing_modules(tests, files, tests.modules)
        files[function.path] = _with_fewer_examples(version.text, function, ExpectedValues(sealed)).encode()
        base = {path: data for path, data in files.items() if path not in failing}
        report = tests.run(base, tests.sealed(failing))
        outcome = outcome_of(failing, report)
        if not outcome.sealed:
            raise Unsuitable("its tests fail otherwise if they are hidden")
        first = outcome.sealed[0]
        statement = statement_of(
            function,
            _docstring(files[function.path].decode(), function),
            version.kind,
            first.id,
            first.failure(report.runs.get(first.id, ())),
        )
        if ExpectedValues(outcome.sealed[:MOST_TESTS]).occur_in(statement):
            raise Unsuitable("its statement contains an expected value")
        meta = {
            "kind": version.kind,
            "change": version.change,
            "function": function.name,
            "licence": tree.licence,
        }
        task = RepositoryTask(
            id=f"{tree.label}/{function.path}/{function.name}",
            statement=statement,
            base=base_name(base),
            may_change=tree.roots,
            tests=tests.sealed(failing),
            fail_to_pass=outcome.sealed,
            reference={function.path: tree.files[function.path].decode()},
            source=f"{tree.name}=={tree.version}",
            meta=meta,
        )
        return self.graded(task, tests.tree, base, outcome)

    def graded(self, task: RepositoryTask, tree: SourceTree, base: Files, outcome: Outcome) -> MadeTask:
        """Return a task with its tests and what all tasks of a set share.

        Raises Unsuitable if code that solves nothing passes, or if base and reference are not judged right
        each time.
        """
        task = msgspec.structs.replace(
            task,
            sealed=True,
            protected=sorted({_test_folder(path) for path in tree.tests}),
            python_path=tree.python_path,
            environment=self._environment.name,
            limits=self._limits,
        )
        try:
            sealed = sealed_tests(self._grader, task, base)
        except SandboxFault as fault:
            raise Unsuitable(f"the sandbox failed: {fault}") from None
        if not sealed:
            raise Unsuitable(TRIVIAL)
        first = {test.id for test in sealed}
        fail = [*sealed, *(test for test in (*outcome.sealed, *outcome.forgeable) if test.id not in first)]
        left_out = max(len(fail) - MOST_TESTS, 0) + max(len(outcome.passing) - MOST_TESTS, 0)
        task = msgspec.structs.replace(
            task,
            fail_to_pass=fail[:MOST_TESTS],
            pass_to_pass=outcome.passing[:MOST_TESTS],
            meta={**task.meta, "tests_left_out": str(left_out)},
        )
        try:
            problem = grading_failure(self._grader, task, base, self._repeats)
        except UserError as error:
            problem = str(error)
        if problem:
            raise Unsuitable(problem)
        return MadeTask(task, base)


def _modules_that_name(
    function: SourceFunction, modules: dict[str, RecordedModule]
) -> dict[str, RecordedModule]:
    word = re.compile(rf"\b{re.escape(function.short_name)}\b")
    named = {path: module for path, module in modules.items() if word.search(module.source)}
    if not named:
        raise Unsuitable("no test module names it")
    return named


def _failing_modules(
    tests: PackageTests, files: Files, modules: dict[str, RecordedModule]
) -> tuple[dict[str, RecordedModule], list[ExpectedTest]]:
    """Return the tests that fail and whose reports cannot be forged, and their modules."""
    report = tests.run(files, tests.sealed(modules))
    if report.errors:
        raise Unsuitable("its test modules cannot be imported without it")
    failing = outcome_of(modules, report).sealed
    if not failing:
        raise Unsuitable("no change of it makes a test fail that compares a value with a known one")
    paths = {test.id.partition("::")[0] for test in failing}
    return {path: module for path, module in modules.items() if path in paths}, failing


def _with_fewer_examples(text: str, function: SourceFunction, values: ExpectedValues) -> str:
    """Return a file without the examples in a function's docstring that show an expected value."""
    if function.docstring is None:
        return text
    first, last = function.docstring
    lines = source_lines(text)
    return "".join([*lines[:first], *values.without(lines[first : last + 1]), *lines[last + 1 :]])


def _docstring(text: str, function: SourceFunction) -> str:
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.FunctionDef) and node.lineno - 1 == function.first:
            return ast.get_docstring(node) or ""
    return ""


def _test_folder(path: str) -> str:
    """Return the folder of tests that a module lies in; its own path if there is none."""
    parts = path.split("/")
    for number, part in enumerate(parts[:-1], 1):
        if part in ("test", "tests", "testing"):
            return "/".join(parts[:number])
    return path


def grading_failure(grader: RepositoryGrader, task: RepositoryTask, base: Files, repeats: int) -> str:
    """Return why a task cannot be used; empty if base and reference are judged right each time.

    The base must fail each test of ``fail_to_pass`` and pass each other one. The reference must pass all.
    """
    number = len(task.fail_to_pass)
    for _ in range(repeats):
        after = grader.grade(task, base, task.reference_change())
        if after.verdict is not Verdict.ACCEPTED:
            return f"the reference is judged {after.verdict.value}"
        before = grader.grade(task, base, {})
        if before.verdict in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR):
            return f"the base is judged {before.verdict.value}"
        passes = [case.verdict is Verdict.ACCEPTED for case in before.cases]
        if any(passes[:number]):
            return f"the base passes {task.fail_to_pass[passes.index(True)].id} of fail_to_pass"
        if not all(passes[number:]):
            return f"the base fails {task.pass_to_pass[passes[number:].index(False)].id} of pass_to_pass"
    return ""
