"""Whether a checker accepts what a program printed. Who is blamed when it fails: see ``responsibility``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from whetstone.judge.answers.protocols import callable_event, event_of
from whetstone.judge.answers.responsibility import UNSURE, Decision, Did, Event, decided, settle
from whetstone.judge.answers.standard_checkers import check_standard
from whetstone.judge.boxes import Boxes, Side, harness_job
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.outcome import run_limits
from whetstone.judge.values import encode
from whetstone.problem import Checker, Program, ProgramChecker, PythonChecker, StandardChecker, StdinCase

# Fixed and generous: a checker is trusted, but what it reads is not.
_LIMITS = run_limits(20, 2048, 16)
_UNPROVED = "the checker does not even decide on the expected output"

Outputs = Callable[[], Iterator[bytes]]
"""What the references print in the case: only asked for where the expected output shows nothing."""


def check(boxes: Boxes, checker: Checker, test: StdinCase, output: bytes, others: Outputs) -> Decision:
    """Who is to blame for what the checker did over ``output``. Raises SandboxFault."""
    expected = test.output.encode("utf-8", "surrogatepass")

    def ask(printed: bytes) -> Event:
        return _ask(boxes, checker, test, printed, expected)

    def works() -> bool:
        return decided(ask(expected)) or any(ask(other).did is Did.ACCEPTED for other in others())

    event = ask(output)
    if event.did in UNSURE:
        event = ask(output)
    return settle("checker", event, works, _UNPROVED)


def _ask(boxes: Boxes, checker: Checker, test: StdinCase, output: bytes, expected: bytes) -> Event:
    if isinstance(checker, StandardChecker):
        return _ask_standard(checker, output, expected)
    if isinstance(checker, ProgramChecker):
        return _ask_program(boxes, checker, test, output, expected)
    return _ask_python(boxes, checker, test, output)


def _ask_standard(checker: StandardChecker, output: bytes, expected: bytes) -> Event:
    accepted, reason = check_standard(checker.name, output, expected)
    if accepted is None:  # what is expected is not what the checker compares
        return Event(Did.BROKEN, reason)
    return Event(Did.ACCEPTED) if accepted else Event(Did.REFUSED, reason)


def _ask_python(boxes: Boxes, checker: PythonChecker, test: StdinCase, output: bytes) -> Event:
    """Run ``check`` in the sandbox for test code."""
    text = output.decode("utf-8", "replace")
    payload = encode([checker.source, test.input, text, test.output])
    ran = boxes.python(Side.TESTS, checker.source).run(harness_job("checker", payload, _LIMITS))
    return callable_event(ran, refused="refused by the problem's checker")


def _ask_program(
    boxes: Boxes, checker: ProgramChecker, test: StdinCase, output: bytes, expected: bytes
) -> Event:
    """Run the checker on the side of the tests, with the files that its protocol asks for."""
    runnable = prepare(boxes, Program(checker.language, checker.source), side=Side.TESTS)
    if isinstance(runnable, CompileFailure):
        return Event(Did.BROKEN, f"it does not compile: {runnable.reason}")
    given = test.input.encode("utf-8", "surrogatepass")
    if checker.protocol == "testlib":
        files = {"input.txt": given, "output.txt": output, "answer.txt": expected}
        sandbox, job = runnable.job(_LIMITS, args=("input.txt", "output.txt", "answer.txt"), files=files)
    elif checker.protocol == "kattis":
        files = {"input.txt": given, "answer.txt": expected, "feedback/": b""}
        args = ("input.txt", "answer.txt", "feedback/", *checker.arguments)
        sandbox, job = runnable.job(_LIMITS, stdin=output, args=args, files=files)
    else:
        files = {"stdin.txt": given, "stdout.txt": expected, "answer.txt": output}
        sandbox, job = runnable.job(_LIMITS, files=files)
    ran = sandbox.run(job)
    runnable.failure(ran)  # one that was not run at all (NotExecuted) has not decided
    python = not language_named(checker.language, "the checker").run
    return event_of(checker.protocol, ran, python=python)
