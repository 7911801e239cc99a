"""Judge ``call`` cases: call a function with arguments, and compare the returned plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from whetstone.core.call_tests import RETURNED, NodeForm
from whetstone.core.literal import read_literal
from whetstone.core.problem import CallCase, CallTests, Compare, Problem, PythonChecker
from whetstone.core.verdict import CaseJudgement, Verdict
from whetstone.judge.answers.checkers import check_values, judge_by_checker
from whetstone.judge.answers.comparisons import UNPLAIN, value_rule
from whetstone.judge.answers.inert import read_each, read_one, show
from whetstone.judge.outcome import (
    case,
    compile_failure,
    crashed,
    judge_failure,
    last_line,
    limit_exceeded,
    run_limits,
)
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.value_reader import TooManyItems
from whetstone.judge.values import WireError, decode_each, encode
from whetstone.sandbox import RunResult
from whetstone.sandbox.script import LinkedCode


def judge_call(
    sandboxes: SandboxSet, problem: Problem, tests: CallTests, test: CallCase, source: str
) -> CaseJudgement:
    """Call a function, or operations of a class, and judge the returned values. Raises SandboxFault."""
    try:
        test = _with_values(tests, test)
    except ValueError as error:
        return judge_failure(f"the tests contain a value that is {error}")
    result, returned = _run(sandboxes, problem, tests, [test], source)
    if failed := limit_exceeded(result):
        if failed.verdict is Verdict.OUTPUT_LIMIT:
            allowed = f"the {problem.limits.output_mb:g} MiB of output_mb"
            return case(result, failed.verdict, f"wrote, or returned, more than {allowed}")
        return failed
    if why := compile_failure(returned):
        return case(result, Verdict.COMPILE_ERROR, why)
    if failed := crashed(result):
        return failed
    try:
        answers = read_each(returned, lambda: [test.expected])
    except TooManyItems as error:
        return case(result, Verdict.WRONG_ANSWER, f"returned {error}, far more than expected")
    except WireError:
        answers = []
    answer = answers[0] if len(answers) == 1 else None
    if isinstance(problem.checker, PythonChecker) and _has_values(answer, test):
        return _judge_checked(sandboxes, problem, tests, test, result, returned)
    return _judge_answer(result, answer, test, problem.compare)


def judge_calls(
    sandboxes: SandboxSet, problem: Problem, tests: CallTests, cases: Sequence[CallCase], source: str
) -> list[CaseJudgement]:
    """Run several cases in one process. Return judgements of those that got an answer, in order.

    None if a checker decides, which reads the answer of one case. Raises SandboxFault.
    """
    if problem.checker is not None:
        return []
    try:
        cases = [_with_values(tests, test) for test in cases]
    except ValueError:
        return []
    result, returned = _run(sandboxes, problem, tests, cases, source)
    if limit_exceeded(result) or crashed(result):
        return []
    try:
        answers = read_each(returned, lambda: [test.expected for test in cases])
    except WireError:
        return []
    if len(answers) > len(cases):
        return []
    return [
        _judge_answer(result, answer, test, problem.compare)
        for answer, test in zip(answers, cases, strict=False)
    ]


def _with_values(tests: CallTests, test: CallCase) -> CallCase:
    """Return the case with its literals replaced by values, and expected nodes as the harness writes them.

    Raises ValueError for an invalid literal.
    """
    if tests.literals:
        if test.operations is None:
            test = CallCase(
                expected=read_literal(test.expected),
                args=[read_literal(text) for text in test.args],
                kwargs={name: read_literal(text) for name, text in test.kwargs.items()},
            )
        else:
            test = CallCase(
                expected=[None, *(read_literal(text) for text in test.expected[1:])],
                args=[[read_literal(text) for text in arguments] for arguments in test.args],
                operations=test.operations,
            )
    if not tests.nodes:
        return test
    if test.operations is None:
        expected = _normal_node(tests.node_form(tests.result_place), test.expected)
    else:
        expected = [
            _normal_node(tests.node_form(f"{name}.{RETURNED}"), value)
            for name, value in zip(test.operations, test.expected, strict=True)
        ]
        # An operation without a result has no node either.
        expected = [
            None if name in (tests.no_result or ()) or not number else value
            for number, (name, value) in enumerate(zip(test.operations, expected, strict=True))
        ]
    return CallCase(expected, test.args, test.kwargs, test.operations)


def _normal_node(form: NodeForm | None, value: Any) -> Any:
    """Return an expected list or tree without trailing nulls; None is empty."""
    if form is None:
        return value
    if form.startswith("list["):
        inner: NodeForm = "TreeNode" if "TreeNode" in form else "ListNode"
        return [_normal_node(inner, item) for item in value]
    items = list(value or ())
    while form == "TreeNode" and items and items[-1] is None:
        items.pop()
    return items


def _run(
    sandboxes: SandboxSet, problem: Problem, tests: CallTests, cases: Sequence[CallCase], source: str
) -> tuple[RunResult, bytes]:
    """Return the result of a run and the returned bytes. The first run stores the program's compiled code."""
    limits = problem.limits
    sandbox = sandboxes.python(SandboxRole.PROGRAM, source)
    text = source.encode("utf-8", "surrogatepass")
    code = sandboxes.last_code.get(sandbox, text)
    inputs = [[test.args, test.kwargs, test.operations] for test in cases]
    results = [tests.result.argument if tests.result else None, tests.no_result or [], tests.nodes or {}]
    payload = encode([source, tests.function, tests.class_, inputs, float(limits.cpu_s), code, results])
    new_code = None if code else LinkedCode()
    link = None if new_code is None else new_code.link
    bounds = run_limits(problem.limits)
    result = sandbox.run(harness_job("call", payload, bounds, link=link))
    if new_code is not None:
        sandboxes.last_code.store(sandbox, text, new_code.code())
    return result, result.result


def values_returned(
    sandboxes: SandboxSet, problem: Problem, tests: CallTests, cases: Sequence[CallCase], source: str
) -> tuple[RunResult, list[object]]:
    """Return the result of a run and the answers of the harness for ``cases``; no answers if they are
    malformed.

    Sets and mappings are constructed. Call this for references only, whose values become expected values.
    Raises SandboxFault.
    """
    result, returned = _run(sandboxes, problem, tests, cases, source)
    try:
        return result, decode_each(returned)
    except WireError:
        return result, []


def _has_values(answer: object, test: CallCase) -> bool:
    """Return whether the program's process returned values for all operations, or a value."""
    match answer:
        case ["value", _]:
            return test.operations is None
        case ["values", list() as values]:
            operations = test.operations or []
            return len(operations) == len(cast("list[Any]", values))
        case _:
            return False


def _judge_checked(
    sandboxes: SandboxSet,
    problem: Problem,
    tests: CallTests,
    test: CallCase,
    result: RunResult,
    answer: bytes,
) -> CaseJudgement:
    """Let the checker decide on the values in an answer."""
    checker = problem.checker
    assert isinstance(checker, PythonChecker)

    def reference_answers() -> Iterator[bytes]:
        for reference in problem.references:
            yield _run(sandboxes, problem, tests, [test], reference.source)[1]

    expected = encode(["value", test.expected])
    return judge_by_checker(
        result,
        lambda: check_values(sandboxes, checker, test, answer, reference_answers),
        lambda: check_values(sandboxes, checker, test, expected, reference_answers),
    )


def _judge_answer(result: RunResult, answer: object, test: CallCase, compare: Compare) -> CaseJudgement:
    match answer:
        case ["value", value] if test.operations is None:
            if value_rule(compare)(value, test.expected, test.args):
                return case(result, Verdict.ACCEPTED)
            return case(result, Verdict.WRONG_ANSWER, _difference(value, test.expected))
        case ["values", list() as values] if test.operations is not None:
            return _judge_operations(result, cast("list[Any]", values), test, compare)
        case ["unplain", str() as text]:
            if value_rule(compare)(UNPLAIN, test.expected, test.args):
                return case(result, Verdict.ACCEPTED)
            return case(result, Verdict.WRONG_ANSWER, f"returned {text}")
        case ["raised", str() as text]:
            memory = text.startswith("MemoryError")
            return case(result, Verdict.MEMORY_LIMIT if memory else Verdict.RUNTIME_ERROR, text)
        case ["too_large", str() as text]:
            return case(result, Verdict.OUTPUT_LIMIT, f"returned a value {text}")
        case ["missing", str() as text]:
            return case(result, Verdict.RUNTIME_ERROR, f"the program defines no `{text}`")
        case _:
            detail = last_line(result.stderr)
            reason = "the program ended before its function returned" + (f": {detail}" if detail else "")
            return case(result, Verdict.RUNTIME_ERROR, reason)


def _judge_operations(
    result: RunResult, values: list[Any], test: CallCase, compare: Compare
) -> CaseJudgement:
    """Compare the value of each operation, each in its own encoding, with the expected one."""
    operations = test.operations or []
    if len(values) != len(operations):
        reason = f"{len(values)} operations returned, of {len(operations)}"
        return case(result, Verdict.WRONG_ANSWER, reason)
    right = value_rule(compare)
    for number, (name, data, wanted) in enumerate(zip(operations, values, test.expected, strict=True)):
        place = f"operation {number + 1}, {name}"
        try:
            value = read_one(data, wanted) if type(data) is bytes else ...
        except WireError as error:
            return case(result, Verdict.WRONG_ANSWER, f"{place}: {error}")
        # The first operation constructs the object. A stateful comparison must not see its value.
        if not (right(value, wanted, test.args[number]) if number else value is None):
            return case(result, Verdict.WRONG_ANSWER, f"{place}: {_difference(value, wanted)}")
    return case(result, Verdict.ACCEPTED)


def _difference(value: object, expected: object) -> str:
    return f"got {show(value)}, expected {show(expected)}"
