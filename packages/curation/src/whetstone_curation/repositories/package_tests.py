"""Run a package's own tests in the sandbox, and record those that pass every time."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from whetstone.core.problem import Limits
from whetstone.judge.environments.environment import PackageEnvironment
from whetstone.judge.environments.installed import normal_name
from whetstone.judge.outcome import limit_exceeded
from whetstone.judge.repository.grader import RepositoryGrader, TestCommand
from whetstone.judge.repository.observations import ExpectedTest, TestReport
from whetstone.judge.repository.recording import record_tests
from whetstone.sandbox import SandboxFault
from whetstone_curation.repositories.package_index import Unsuitable
from whetstone_curation.repositories.source_tree import SourceTree

_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_DIGITS = re.compile(r"\d+")


class RecordedModule(Struct, frozen=True):
    """A test module: its source, its sealed source, and its tests that pass every time."""

    source: str
    sealed: str
    tests: list[ExpectedTest]


def check_environment(tree: SourceTree, environment: PackageEnvironment) -> None:
    """Raise Unsuitable if the environment has the package itself, or lacks what it requires."""
    installed = {normal_name(name) for name in environment.versions}
    modules = {root.rpartition("/")[2].removesuffix(".py") for root in tree.roots}
    if tree.name in installed or not modules.isdisjoint(environment.modules):
        raise Unsuitable(
            f"the environment `{environment.name}` has this package, from which a program could copy; use "
            "one without it"
        )
    if missing := [need for need in tree.requires if need not in installed]:
        raise Unsuitable(f"it needs {', '.join(missing)}; {_remedy(missing)}")


def _remedy(packages: list[str]) -> str:
    return f"make an environment: whetstone judge environment create NAME pytest {' '.join(packages)}"


class PackageTests:
    """Runs the tests of one package with its files, changed or not."""

    def __init__(
        self, tree: SourceTree, grader: RepositoryGrader, limits: Limits, stopped: threading.Event
    ) -> None:
        self.tree, self._grader, self._limits, self._stopped = tree, grader, limits, stopped
        self.modules: dict[str, RecordedModule] = {}
        self.dropped: Counter[str] = Counter()

    def run(self, files: Mapping[str, bytes], modules: Mapping[str, str]) -> TestReport:
        """Run test modules beside files. Raises Unsuitable if a limit, a crash or the user ends them."""
        if self._stopped.is_set():
            raise Unsuitable("interrupted")
        command = TestCommand([*modules], self.tree.python_path)
        try:
            result, report = self._grader.run_tests(files, modules, command, self._limits)
        except SandboxFault as fault:
            raise Unsuitable(f"the sandbox failed: {fault}") from None
        if stopped := limit_exceeded(result):
            raise Unsuitable(f"the tests are ended by a limit: {stopped.reason}")
        if not report.complete:
            raise Unsuitable("the process of the tests ends before their end")
        return report

    def record(self, repeats: int) -> None:
        """Record the modules that run alone. Kept are the tests that pass ``repeats`` times together.

        Raises Unsuitable if there is none.
        """
        sources: dict[str, str] = {}
        for path in self.tree.tests:
            if reason := self._obstacle(path):
                self.dropped[reason] += 1
            else:
                sources[path] = self.tree.files[path].decode()
        if sources:  # without a module, pytest would collect every file
            found = record_tests(sources, lambda modules: self.run(self.tree.files, modules), repeats=repeats)
            self.dropped.update(_DIGITS.sub("N", reason) for reason in found.dropped.values())
            for path, sealed in found.modules.items():
                tests = [test for test in found.tests if test.id.startswith(f"{path}::")]
                if tests:
                    self.modules[path] = RecordedModule(sources[path], sealed, tests)
        if not self.modules:
            reasons = "; ".join(reason for reason, _ in self.dropped.most_common(2))
            raise Unsuitable(f"no test passes every time: {reasons}")

    def _obstacle(self, path: str) -> str:
        """Return why a test module cannot be used; empty if it runs to its end."""
        try:
            report = self.run(self.tree.files, {path: self.tree.files[path].decode()})
        except (Unsuitable, UnicodeDecodeError) as error:
            return f"a test module: {error}"
        if not report.errors:
            return ""
        missing = _NO_MODULE.search(report.errors[0])
        if missing is None:
            return "a test module cannot be collected"
        return f"a test module needs `{missing[1]}`; {_remedy([missing[1]])}"

    @staticmethod
    def sealed(modules: Mapping[str, RecordedModule]) -> dict[str, str]:
        """Return the sealed sources of test modules."""
        return {path: module.sealed for path, module in modules.items()}
