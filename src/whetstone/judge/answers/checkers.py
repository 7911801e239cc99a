"""Run a problem's checker on the output of a program. For the fault of a failure, see ``responsibility``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from whetstone.core.problem import (
    CallCase,
    Checker,
    Program,
    ProgramChecker,
    PythonChecker,
    StandardChecker,
    StdinCase,
)
from whetstone.core.verdict import CaseJudgement, Verdict
from whetstone.judge.answers.protocols import callable_event, event_of
from whetstone.judge.answers.responsibility import (
    UNSURE,
    Blame,
    BlameDecision,
    CheckerEvent,
    Event,
    decide_blame,
    is_decision,
)
from whetstone.judge.answers.standard_checkers import check_standard
from whetstone.judge.failure_cause import NotJudged, despite_faults
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.outcome import case, judge_failure
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.values import encode
from whetstone.sandbox import RunLimits, RunResult
from whetstone.sandbox.execute import NotExecuted

# These limits do not depend on the problem. A checker is trusted, but the output that it reads is not.
_LIMITS = RunLimits(cpu_s=20, memory_bytes=2 << 30, output_bytes=16 << 20)
_UNPROVED = "the checker does not even decide on the expected output"

Outputs = Callable[[], Iterator[bytes]]
"""Yields the outputs of the references in the case. Called only if the expected output gives no evidence."""


def check(
    sandboxes: SandboxSet, checker: Checker, test: StdinCase, output: bytes, references: Outputs
) -> BlameDecision:
    """Return who is at fault for the checker's event on ``output``. Raises SandboxFault."""
    expected = test.output.encode("utf-8", "surrogatepass")

    def event_on(printed: bytes) -> Event:
        if isinstance(checker, StandardChecker):
            accepted, reason = check_standard(checker.name, printed, expected)
            # The checker cannot read the expected output.
            if accepted is None:
                return Event(CheckerEvent.BROKEN, reason)
            return Event(CheckerEvent.ACCEPTED) if accepted else Event(CheckerEvent.REFUSED, reason)
        if isinstance(checker, ProgramChecker):
            return _run_program(sandboxes, checker, test, printed, expected)
        text = printed.decode("utf-8", "replace")
        return _run_callable(sandboxes, checker.source, test.input, text, test.output)

    return _decide(event_on, output, expected, references)


def check_values(
    sandboxes: SandboxSet, checker: PythonChecker, test: CallCase, answer: bytes, references: Outputs
) -> BlameDecision:
    """Return who is at fault for the checker's event on returned values. Raises SandboxFault.

    answer: the answer of the program's process, as it was encoded there. Only the checker's process creates
    the values in it. ``references`` yields such answers.
    """
    given = {"args": test.args, "kwargs": test.kwargs, "operations": test.operations}

    def event_on(returned: bytes) -> Event:
        return _run_callable(sandboxes, checker.source, given, returned, test.expected)

    return _decide(event_on, answer, encode(["value", test.expected]), references)


def judge_by_checker(
    result: RunResult, decide: Callable[[], BlameDecision], works: Callable[[], BlameDecision]
) -> CaseJudgement:
    """Return the judgement on a case that ``decide`` decides, which runs the checker.

    If the checker's sandbox dies, only the checker runs again. ``works`` runs it on the expected output.
    """

    def attempt() -> BlameDecision:
        try:
            return decide()
        except NotExecuted as fault:
            return BlameDecision(Blame.JUDGE, str(fault))

    def harmless(_: float) -> bool:
        works()
        return True

    try:
        blame, reason = despite_faults("the checker's sandbox", attempt, harmless)
    except NotJudged as failure:
        return case(result, failure.verdict, str(failure))
    if blame is Blame.JUDGE:
        return judge_failure(reason)
    return case(result, Verdict.ACCEPTED if blame is Blame.NONE else Verdict.WRONG_ANSWER, reason)


def _run_callable(
    sandboxes: SandboxSet, source: str, given: object, output: object, expected: object
) -> Event:
    payload = encode([source, given, output, expected])
    result = sandboxes.python(SandboxRole.TESTS, source).run(harness_job("checker", payload, _LIMITS))
    return callable_event(result, refused="refused by the problem's checker")


def _decide(
    event_on: Callable[[bytes], Event], output: bytes, expected: bytes, references: Outputs
) -> BlameDecision:
    """Return who is at fault for the checker's event on ``output``."""

    def works() -> bool:
        return is_decision(event_on(expected)) or any(
            event_on(other).kind is CheckerEvent.ACCEPTED for other in references()
        )

    event = event_on(output)
    if event.kind in UNSURE:
        event = event_on(output)
    return decide_blame("checker", event, works, _UNPROVED)


def _run_program(
    sandboxes: SandboxSet, checker: ProgramChecker, test: StdinCase, output: bytes, expected: bytes
) -> Event:
    """Run the checker in a sandbox for test code, with the files of its protocol."""
    runnable = prepare(sandboxes, Program(checker.language, checker.source), role=SandboxRole.TESTS)
    if isinstance(runnable, CompileFailure):
        return Event(CheckerEvent.BROKEN, f"it does not compile: {runnable.reason}")
    input_data = test.input.encode("utf-8", "surrogatepass")
    if checker.protocol == "testlib":
        files = {"input.txt": input_data, "output.txt": output, "answer.txt": expected}
        sandbox, job = runnable.job(_LIMITS, args=("input.txt", "output.txt", "answer.txt"), files=files)
    elif checker.protocol == "kattis":
        files = {"input.txt": input_data, "answer.txt": expected, "feedback/": b""}
        args = ("input.txt", "answer.txt", "feedback/", *checker.arguments)
        sandbox, job = runnable.job(_LIMITS, stdin=output, args=args, files=files)
    else:
        files = {"stdin.txt": input_data, "stdout.txt": expected, "answer.txt": output}
        sandbox, job = runnable.job(_LIMITS, files=files)
    result = sandbox.run(job)
    # Raises NotExecuted if the checker could not be started. Its exit code is no decision then.
    runnable.failure(result)
    python = not language_named(checker.language, "the checker").run
    return event_of(checker.protocol, result, python=python)
