"""Two processes joined by a link: test code in one, the program in the other. The first records outcomes.

A recorded outcome is final, even if the program, the test process or a sandbox dies afterwards.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from whetstone.core.problem import AssertTests, Problem, case_count
from whetstone.core.syntax import parsing
from whetstone.judge.kinds.assert_code import (
    NotSeparable,
    captures_output,
    refuse_inseparable,
    sets_seeds,
    shown_files,
    touches_files,
)
from whetstone.judge.kinds.assert_names import test_names
from whetstone.judge.languages.table import is_python
from whetstone.judge.outcome import compile_failure, outlasting, run_limits
from whetstone.judge.rpc.compiling import TestCodeError, compile_test_code
from whetstone.judge.rpc.result_recorder import LENGTH_BYTES
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.values import WireError, decode
from whetstone.sandbox import EndReason, RunResult, SandboxFault, supervise
from whetstone.sandbox.streams import link_to_program

# Statuses of a unit that the program failed. For the others, see `rpc/tests.py`.
REFUSALS = frozenset({"failed", "unusable", "raised", "missing"})
_STATUSES = REFUSALS | {"passed", "gone", "differs", "broken", "spoiled"}
# The test process needs memory for its own data and for values that the program sends.
_TEST_MEMORY_BYTES = 1 << 30
# Room for the records of one unit in the result of the test process.
_RECORD_BYTES = 4096
# The test process compiles longer test code itself, within its own limits.
_MAX_COMPILED_CHARS = 64 << 10
# The newest format that every supported version of Python reads.
_MARSHAL_OF_ALL = 4
NOTHING_RAN = RunResult(EndReason.KILLED, None, None, 0.0, 0.0, 0, b"", b"", b"")


AnswerDigest = list[Any]
"""The number of a program's messages and their digest."""
FirstAnswers = dict[int, AnswerDigest | None]
"""The digest of the first run of a case that a time limit stopped, by the number of the case.

None if it is not known. A second run could then not be compared with the first one.
"""


class UnitOutcome(NamedTuple):
    """The outcome of one unit. ``strained``: the proxy itself may have caused the failure."""

    status: str
    reason: str
    strained: bool


@dataclass(frozen=True)
class Pair:
    """The results of both processes.

    ``outcomes`` are those of the first units. ``cut``: the last unit was failing when the process ended, and
    has no final record. ``begun``: the program may have influenced the end of the test process. ``answered``
    is the digest of the program's messages in the unit in which the link was lost. With a ``fault``, neither
    process has a result.
    """

    tested: RunResult
    program: RunResult
    outcomes: list[UnitOutcome]
    cut: bool
    begun: bool
    answered: AnswerDigest | None
    fault: SandboxFault | None = None

    @property
    def compile_error(self) -> str | None:
        """The error of a program that does not compile; else None."""
        return compile_failure(self.program.result) if self.program.ended is EndReason.EXITED else None


def unit_of(sandboxes: SandboxSet, problem: Problem, tests: AssertTests, number: int) -> dict[str, Any]:
    """Return the description of a unit for the test process. Raises NotPython, NotSeparable (ValueErrors).

    NotSeparable means that no program can pass the unit through the proxy, and that no reference does.
    """
    return described_unit(problem, tests, number, frozenset(sandboxes.environment.modules))


def described_unit(
    problem: Problem, tests: AssertTests, number: int, packages: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the same as ``unit_of``.

    ``packages``: those that the test process may import in addition to the standard library.
    """
    kind, code = "unittest", tests.unittest
    if tests.check:
        kind, code = "check", tests.check
    elif tests.asserts:
        kind, code = "asserts", tests.asserts[number]
    assert code is not None
    references = tuple(r.source for r in problem.references if is_python(r.language))
    shown = (problem.statement, problem.starter or "")
    whole = f"{tests.setup}\n{code}"
    names = test_names(whole, tests.entry_point, references, shown, packages)
    inseparable = False
    try:
        refuse_inseparable(whole, frozenset(names.program))
    except NotSeparable:
        if not references:
            raise
        inseparable = True
    return {
        "kind": kind,
        "setup": tests.setup,
        "code": code,
        "entry_point": tests.entry_point,
        "names": list(names.program),
        "classes": list(names.classes),
        "imports": {name: list(where) for name, where in names.imports.items()},
        "free": list(names.free),
        "inseparable": inseparable,
        "captures": captures_output(whole),
        "seeds": sets_seeds(whole),
        "files": shown_files("\n".join(shown)) if touches_files(whole) else None,
    }


def tests_payload(units: Sequence[dict[str, Any]], expected: AnswerDigest | None, *, compiled: bool) -> bytes:
    """Return the payload of the test process.

    It may contain code that is ``compiled``, if both processes run the same Python.
    """
    if not compiled:
        return marshal.dumps([[[unit, None] for unit in units], expected], _MARSHAL_OF_ALL)
    return marshal.dumps([[[unit, _codes(unit["setup"], unit["code"])] for unit in units], expected])


@lru_cache(maxsize=2048)
def _codes(setup: str, code: str) -> list[CodeType] | None:
    """Compile test code, once for all programs of a problem. None if the test process must compile it."""
    if len(setup) + len(code) > _MAX_COMPILED_CHARS:
        return None
    with suppress(TestCodeError), parsing():  # the test process reports the error
        return [
            compile_test_code(setup, "<setup>", hooks=True),
            compile_test_code(code, "<test>", hooks=True),
        ]
    return None


def why_inseparable(problem: Problem) -> str | None:
    """Return why no program can pass the tests of a problem without references; None if one can."""
    if isinstance(problem.tests, AssertTests):
        try:
            for number in range(case_count(problem)):
                described_unit(problem, problem.tests, number)
        except NotSeparable as why:
            return str(why)
        except ValueError:
            pass  # the judge reports it
    return None


def run_pair(
    sandboxes: SandboxSet,
    problem: Problem,
    units: Sequence[dict[str, Any]],
    source: str,
    expected: AnswerDigest | None = None,
) -> Pair:
    """Run both processes until they end, or until a sandbox dies.

    In the first unit, the program's messages must begin as ``expected``. Raises SandboxFault if the processes
    cannot be started.
    """
    program_limits = run_limits(problem.limits)
    test_limits = replace(
        program_limits,
        cpu_s=2 * program_limits.cpu_s,
        memory_bytes=max(_TEST_MEMORY_BYTES, 2 * program_limits.memory_bytes),
        # If the program hangs, its own limit must end it.
        wall_s=outlasting(program_limits),
    )
    # All code of the tests decides, because it may import other packages than the program.
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    codes = (tests.setup, tests.check or "", tests.unittest or "", *(tests.asserts or ()))
    imports = [f"import {module}" for unit in units for module, _ in unit["imports"].values()]
    test_box = sandboxes.python(SandboxRole.TESTS, *codes, *imports)
    program_box = sandboxes.python(SandboxRole.CALLED_BY_TESTS, source)
    near, far = link_to_program()
    with near, far:
        program = program_box.start(
            harness_job("program", source.encode("utf-8", "surrogatepass"), program_limits, link=far.fileno())
        )
        far.detach()  # the sandbox now owns it and closes it
        try:
            payload = tests_payload(units, expected, compiled=not sandboxes.environment.interpreter)
            job = harness_job("tests", payload, test_limits, link=near.fileno())
            tested = test_box.start(replace(job, result_extra=_RECORD_BYTES * len(units)))
        except BaseException:
            program.close()
            program.server.kill()
            raise
        near.detach()
        try:
            results = supervise([tested, program])
        except SandboxFault as fault:
            return Pair(NOTHING_RAN, NOTHING_RAN, *read_record(tested.harness_output()), fault)
    return Pair(results[0], results[1], *read_record(results[0].result))


def read_record(data: bytes) -> tuple[list[UnitOutcome], bool, bool, AnswerDigest | None]:
    """Return ``(outcomes, cut, begun, answered)`` of a record; see ``Pair``."""
    outcomes: list[UnitOutcome] = []
    answered: AnswerDigest | None = None
    begun, seen = False, list[UnitOutcome]()
    for entry in _entries(data):
        match entry:
            case ["begun"]:
                begun = True
            case ["unit", str() as status, str() as reason, bool() as strained] if status in _STATUSES:
                outcomes.append(UnitOutcome(status, reason, strained))
                seen = []
            case ["answered", int() as count, bytes() as digest]:
                answered = [count, digest]
            case ["seen", str() as status, str() as reason] if status in REFUSALS:
                seen = [UnitOutcome(status, reason, False)]
            case _:
                seen = []
    return outcomes + seen, bool(seen), begun, answered


def _entries(data: bytes) -> Iterator[object]:
    """Yield the complete entries. The process may have died in the middle of one."""
    at = 0
    with suppress(WireError):
        while at + LENGTH_BYTES <= len(data):
            end = at + LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "little")
            if end > len(data):
                return
            yield decode(data[at + LENGTH_BYTES : end])
            at = end
