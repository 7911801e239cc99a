"""Run a problem's checker on the output of a program. For the fault of a failure, see ``responsibility``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from whetstone.core.problem import Checker, Program, ProgramChecker, StandardChecker, StdinCase
from whetstone.judge.answers.protocols import callable_event, event_of
from whetstone.judge.answers.responsibility import (
    UNSURE,
    BlameDecision,
    CheckerEvent,
    Event,
    decide_blame,
    is_decision,
)
from whetstone.judge.answers.standard_checkers import check_standard
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.values import encode
from whetstone.sandbox import RunLimits

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
        payload = encode([checker.source, test.input, text, test.output])
        result = sandboxes.python(SandboxRole.TESTS, checker.source).run(
            harness_job("checker", payload, _LIMITS)
        )
        return callable_event(result, refused="refused by the problem's checker")

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
