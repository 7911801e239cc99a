"""Whether a checker accepts what a program printed.

A checker either decides, or it fails. What a failure means is settled here:

- The checker was killed, exceeded a limit, or ended in a way that its protocol does not know:
  JUDGE_ERROR, never a verdict on the program.
- A checker in Python raised an exception on this output, or returned no bool (the None of a pattern that
  did not match), but decides on the expected one: it cannot make sense of what the program printed, and
  refuses it, as testlib's readers do. Otherwise printing nonsense would be a way out of being judged.
  MemoryError and RecursionError are exhaustion, not reading, and count as the crash that they are elsewhere.

Where a checker crashed that decides on the expected output, the reason begins with ``CRASHED_ON_OUTPUT``:
such a judgement has no score, so a program gains nothing from it, but a report can count them.
"""

from __future__ import annotations

from whetstone.judge.answers.protocols import Decision, Said, decision_of, python_decision
from whetstone.judge.answers.standard_checkers import check_standard
from whetstone.judge.boxes import Boxes, Side, harness_job
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.outcome import run_limits
from whetstone.judge.values import encode
from whetstone.problem import Checker, Program, ProgramChecker, PythonChecker, StandardChecker, StdinCase
from whetstone.verdict import Verdict

CRASHED_ON_OUTPUT = "the checker crashed on this output, but decides on the expected one"
# Fixed and generous: a checker is trusted, but what it reads is not.
_LIMITS = run_limits(20, 2048, 16)


_ACCEPTED = Decision(Said.ACCEPTED)


def check(boxes: Boxes, checker: Checker, test: StdinCase, output: bytes) -> Decision:
    """The checker's decision on ``output``: ACCEPTED, REFUSED or FAILED. Raises SandboxFault."""
    expected = test.output.encode("utf-8", "surrogatepass")
    decision = _ask(boxes, checker, test, output, expected)
    if decision.said in (Said.ACCEPTED, Said.REFUSED) or isinstance(checker, StandardChecker):
        return decision
    decides = _ask(boxes, checker, test, expected, expected).said in (Said.ACCEPTED, Said.REFUSED)
    if not decides:
        return Decision(
            Said.FAILED, f"the checker does not even decide on the expected output: {decision.reason}"
        )
    if decision.said is Said.UNREADABLE:
        return Decision(Said.REFUSED, f"the problem's checker cannot read the output: {decision.reason}")
    return Decision(Said.FAILED, f"{CRASHED_ON_OUTPUT}: {decision.reason}")


def _ask(boxes: Boxes, checker: Checker, test: StdinCase, output: bytes, expected: bytes) -> Decision:
    if isinstance(checker, StandardChecker):
        return _ask_standard(checker, output, expected)
    if isinstance(checker, ProgramChecker):
        return _ask_program(boxes, checker, test, output, expected)
    return _ask_python(boxes, checker, test, output)


def _ask_standard(checker: StandardChecker, output: bytes, expected: bytes) -> Decision:
    accepted, reason = check_standard(checker.name, output, expected)
    if accepted is None:
        return Decision(Said.FAILED, reason)
    return _ACCEPTED if accepted else Decision(Said.REFUSED, reason)


def _ask_python(boxes: Boxes, checker: PythonChecker, test: StdinCase, output: bytes) -> Decision:
    """Run ``check`` in the sandbox for test code."""
    text = output.decode("utf-8", "replace")
    payload = encode([checker.source, test.input, text, test.output])
    ran = boxes.python(Side.TESTS, checker.source).run(harness_job("checker", payload, _LIMITS))
    return python_decision("checker", ran, refused="refused by the problem's checker")


def _ask_program(
    boxes: Boxes, checker: ProgramChecker, test: StdinCase, output: bytes, expected: bytes
) -> Decision:
    """Run the checker on the side of the tests, with the files that its protocol asks for."""
    runnable = prepare(boxes, Program(checker.language, checker.source), side=Side.TESTS)
    if isinstance(runnable, CompileFailure):
        return Decision(Said.FAILED, f"the checker does not compile: {runnable.reason}")
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
    # A checker that was not run at all (NotExecuted), or is no program, has not decided.
    failure = runnable.failure(ran)
    if failure is not None and failure.verdict is Verdict.COMPILE_ERROR:
        return Decision(Said.FAILED, "the checker does not compile")
    python = not language_named(checker.language, "the checker").run
    return decision_of("checker", checker.protocol, ran, python=python)
