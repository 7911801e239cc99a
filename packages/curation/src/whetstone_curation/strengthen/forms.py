"""The tests of a problem as inputs and answers: reading them, labelling inputs, and writing new tests."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from whetstone.core.literal import read_literal, write_literal
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Limits,
    NoTests,
    Problem,
    Program,
    StdinCase,
    StdinTests,
)
from whetstone.core.syntax import parsed
from whetstone.data.validate.references import makes_sets
from whetstone.judge.answers.equality import equal
from whetstone_curation.input_validator import InputValidator
from whetstone_curation.strengthen.answers import Answers, NoAnswer
from whetstone_curation.strengthen.asserts import (
    COMPARED_FUNCTION,
    AssertForm,
    only_asserts,
    read_asserts,
    with_asserts,
    written_assert,
)
from whetstone_curation.strengthen.lines import InputLayout, layout_of

_LONGEST_OUTPUT = 100_000
# The function of a validator.
_VALIDATOR = "valid"
_RECORDER = """
def _recorded():
    from copy import deepcopy
    calls = []
    def record(*arguments):
        if len(calls) < 40:
            calls.append(deepcopy(list(arguments)))
        return __function__(*arguments)
    check(record)
    return [each for each in calls if len(each) == len(calls[0])]
"""


class AddedTests(Struct, frozen=True, omit_defaults=True):
    """New tests of the problem's kind."""

    stdin: list[StdinCase] = []
    call: list[CallCase] = []
    asserts: list[str] = []

    @property
    def count(self) -> int:
        """The number of tests."""
        return len(self.stdin) + len(self.call) + len(self.asserts)


class LabelledInput(Struct, frozen=True):
    """An input with the answer of a reference. added: this one test."""

    arguments: list[Any]
    answer: Any
    added: AddedTests


class TestForm:
    """Tests of one kind. seeds: the given inputs, as arguments of a function. hints: the arguments as the
    reference declares them, such as ``n: int``."""

    seeds: list[list[Any]]
    hints: list[str]

    def label(
        self, program: Program, inputs: Sequence[list[Any]], answers: Answers, limits: Limits
    ) -> list[LabelledInput]:
        """Return the inputs for which a program has an answer that can be a test, with these."""
        raise NotImplementedError

    def input_text(self, arguments: list[Any]) -> str | None:
        """Return an input as text; None if inputs are not text, or if it does not fit the layout."""
        return None

    def problem_with(self, cases: Sequence[LabelledInput]) -> Problem:
        """Return the problem with these tests only, each of which is a case."""
        raise NotImplementedError


class UnreadableTests(Exception):
    """The tests have no inputs that can be read; the message is the reason."""


def read_tests(problem: Problem, recorded: Sequence[list[Any]] = ()) -> TestForm:
    """Return the tests of a problem as inputs. Raises UnreadableTests.

    recorded: the arguments of its asserts (``recorded_inputs``), if these cannot be read.
    """
    if problem.scoring.mode == "groups":
        raise UnreadableTests("its cases are scored in groups, to which no new one belongs")
    tests = problem.tests
    if isinstance(tests, StdinTests):
        return _Stdin(problem, tests)
    if isinstance(tests, CallTests):
        return _Call(problem, tests)
    if isinstance(tests, AssertTests):
        return _Asserts(problem, tests, recorded)
    raise UnreadableTests("it has no tests" if isinstance(tests, NoTests) else "a conversation has no inputs")


def recorded_inputs(problem: Problem, answers: Answers) -> list[list[Any]]:
    """Return the arguments with which the function ``check`` calls the first reference, run in the sandbox.

    They serve tests that compute their inputs, for example in a loop. Empty for other tests.
    """
    tests = problem.tests
    if not isinstance(tests, AssertTests) or not tests.check or not tests.entry_point:
        return []
    source = "\n".join((problem.references[0].source, tests.setup, tests.check, _RECORDER))
    case = CallCase(None, [])
    source = source.replace("__function__", tests.entry_point)
    [calls] = answers.returned(source, CallTests([case], "_recorded"), [case], problem.limits)
    return calls if isinstance(calls, list) and calls and all(calls) else []


def with_added(problem: Problem, added: AddedTests) -> Problem:
    """Return the problem with new tests after the given ones."""
    tests = problem.tests
    if isinstance(tests, StdinTests):
        more = msgspec.structs.replace(tests, cases=[*tests.cases, *added.stdin])
    elif isinstance(tests, CallTests):
        more = msgspec.structs.replace(tests, cases=[*tests.cases, *added.call])
    else:
        assert isinstance(tests, AssertTests)
        more = with_asserts(tests, added.asserts)
    return msgspec.structs.replace(problem, tests=more)


def joined_tests(cases: Sequence[LabelledInput]) -> AddedTests:
    """Return the tests of several labelled inputs."""
    return AddedTests(
        [test for case in cases for test in case.added.stdin],
        [test for case in cases for test in case.added.call],
        [test for case in cases for test in case.added.asserts],
    )


class _Stdin(TestForm):
    def __init__(self, problem: Problem, tests: StdinTests) -> None:
        self._problem = problem
        texts = [case.input for case in tests.cases]
        layout = layout_of(texts)
        self._layout: InputLayout | None = layout
        self.seeds = [layout.read(text) if layout else [text] for text in texts]
        self.hints: list[str] = []
        if layout is None and any("\n" in text.strip() for text in texts):
            raise UnreadableTests("no layout of lines and counts fits all inputs")

    def label(
        self, program: Program, inputs: Sequence[list[Any]], answers: Answers, limits: Limits
    ) -> list[LabelledInput]:
        written = [(values, text) for values in inputs if (text := self.input_text(values)) is not None]
        printed = answers.printed(program, [text for _, text in written], limits)
        return [
            LabelledInput(values, _plain_answer(output), AddedTests(stdin=[StdinCase(text, output)]))
            for (values, text), output in zip(written, printed, strict=True)
            if isinstance(output, str) and output.strip() and len(output) <= _LONGEST_OUTPUT
        ]

    def input_text(self, arguments: list[Any]) -> str | None:
        if self._layout is None:
            return str(arguments[0])
        try:
            text = self._layout.write(arguments)
            return text if self._layout.read(text) == arguments else None
        except (ValueError, TypeError, StopIteration, RuntimeError):
            return None

    def problem_with(self, cases: Sequence[LabelledInput]) -> Problem:
        return msgspec.structs.replace(self._problem, tests=StdinTests(joined_tests(cases).stdin))


class _Call(TestForm):
    def __init__(self, problem: Problem, tests: CallTests) -> None:
        if tests.function is None:
            raise UnreadableTests("operations on an object have no inputs that could be varied one by one")
        self._problem, self._tests = problem, tests
        self._keywords = sorted(tests.cases[0].kwargs)
        read: Callable[[Any], Any] = read_literal if tests.literals else lambda value: value
        width = len(tests.cases[0].args)
        try:
            self.seeds = [
                [*map(read, case.args), *(read(case.kwargs[name]) for name in self._keywords)]
                for case in tests.cases
                if len(case.args) == width and sorted(case.kwargs) == self._keywords
            ]
        except ValueError as error:
            raise UnreadableTests(str(error)) from None
        self.hints = _declared_arguments(problem, tests.function)[:width]
        if not self.seeds[0]:
            raise UnreadableTests("the function takes no arguments")

    def label(
        self, program: Program, inputs: Sequence[list[Any]], answers: Answers, limits: Limits
    ) -> list[LabelledInput]:
        width = len(self.seeds[0]) - len(self._keywords)
        calls = [
            CallCase(None, arguments[:width], dict(zip(self._keywords, arguments[width:], strict=True)))
            for arguments in inputs
        ]
        tests = CallTests(calls, self._tests.function, self._tests.class_)
        found: list[LabelledInput] = []
        for arguments, call, value in zip(
            inputs, calls, answers.returned(program.source, tests, calls, limits), strict=True
        ):
            case = None if isinstance(value, NoAnswer) else self._case(call, value)
            if case is not None and not _order_by_chance(program, value):
                found.append(LabelledInput(arguments, value, AddedTests(call=[case])))
        return found

    def _case(self, call: CallCase, value: Any) -> CallCase | None:
        try:
            if self._tests.literals:
                kwargs = {name: write_literal(item) for name, item in call.kwargs.items()}
                return CallCase(write_literal(value), list(map(write_literal, call.args)), kwargs)
            case = CallCase(value, call.args, call.kwargs)
            again = msgspec.json.decode(msgspec.json.encode(case), type=CallCase)
        except (ValueError, TypeError, msgspec.MsgspecError):
            return None
        same = equal(again.expected, value) and equal([again.args, again.kwargs], [call.args, call.kwargs])
        return again if same else None

    def problem_with(self, cases: Sequence[LabelledInput]) -> Problem:
        tests = msgspec.structs.replace(self._tests, cases=joined_tests(cases).call)
        return msgspec.structs.replace(self._problem, tests=tests)


class _Asserts(TestForm):
    def __init__(self, problem: Problem, tests: AssertTests, recorded: Sequence[list[Any]]) -> None:
        function = tests.entry_point or _called_function(problem, tests)
        found = read_asserts(tests, function, recorded) if function and not tests.unittest else None
        if found is None:
            raise UnreadableTests("no assert compares what a call of plain values gives")
        self._problem, self._tests = problem, tests
        self._form: AssertForm = found[0]
        self.seeds = found[1]
        self.hints = _declared_arguments(problem, self._form.function)

    def label(
        self, program: Program, inputs: Sequence[list[Any]], answers: Answers, limits: Limits
    ) -> list[LabelledInput]:
        calls = [CallCase(None, arguments) for arguments in inputs]
        source = program.source + self._form.compared_value_code()
        values = answers.returned(source, CallTests(calls, COMPARED_FUNCTION), calls, limits) if calls else []
        found: list[LabelledInput] = []
        for arguments, value in zip(inputs, values, strict=True):
            if isinstance(value, NoAnswer) or _order_by_chance(program, value):
                continue
            if line := written_assert(self._form, arguments, value):
                found.append(LabelledInput(arguments, value, AddedTests(asserts=[line])))
        return found

    def problem_with(self, cases: Sequence[LabelledInput]) -> Problem:
        tests = only_asserts(self._tests, self._form, joined_tests(cases).asserts)
        return msgspec.structs.replace(self._problem, tests=tests)


def valid_inputs(
    validator: InputValidator, inputs: Sequence[list[Any]], form: TestForm, answers: Answers, limits: Limits
) -> list[list[Any]]:
    """Return the inputs that the validator accepts."""
    texts = [form.input_text(arguments) for arguments in inputs]
    if any(text is not None for text in texts):
        valid = set[int]()
        for given in validator.arguments or [[]]:
            rest = [(at, text) for at, text in enumerate(texts) if text is not None and at not in valid]
            accepted = answers.accepted(validator.program, [text for _, text in rest], limits, given)
            valid |= {at for (at, _), fine in zip(rest, accepted, strict=True) if fine}
        return [inputs[at] for at in sorted(valid)]
    calls = [CallCase(None, arguments) for arguments in inputs]
    values = answers.returned(validator.source, CallTests(calls, _VALIDATOR), calls, limits) if calls else []
    return [arguments for arguments, value in zip(inputs, values, strict=True) if value is True]


def _order_by_chance(program: Program, value: Any) -> bool:
    """Return whether an answer may be a list made of a set, whose order differs between right programs."""
    if not isinstance(value, list | tuple) or len(cast("list[Any]", value)) < 2 or not makes_sets(program):
        return False
    items = cast("list[Any]", list(value))
    try:
        return items != sorted(items) and items != sorted(items, reverse=True)
    except TypeError:
        return True


def _called_function(problem: Problem, tests: AssertTests) -> str | None:
    """Return the function of the program that the first assert calls."""
    defined = {
        node.name
        for program in problem.references
        if (tree := parsed(program.source)) is not None
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    for code in tests.asserts or []:
        tree = parsed(code)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defined:
                return node.func.id
    return None


def _declared_arguments(problem: Problem, function: str) -> list[str]:
    """Return the texts of the arguments in the first program that defines a function; empty without one."""
    for program in problem.references:
        tree = parsed(program.source)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.FunctionDef) and node.name == function:
                arguments = (
                    node.args.args[1:]
                    if node.args.args[:1] and node.args.args[0].arg == "self"
                    else node.args.args
                )
                return list(map(ast.unparse, arguments))
    return []


def _plain_answer(output: str) -> Any:
    """Return a printed answer as a number or a word, or as a list of its words."""
    words = output.split()
    if len(words) != 1:
        return words
    try:
        return int(words[0])
    except ValueError:
        return words[0]
