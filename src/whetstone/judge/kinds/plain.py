"""Which assert tests only compare what one call returns with a literal, and what they then say.

Such a test needs no interpreter of its own: the calls are its inputs, the literals its answers, and the
judge can ask and compare by itself, which saves a process. Everything that this module does not recognise is
for a testing process (see ``pair``). Decided from the problem alone.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from whetstone.judge.answers.inert import Inert
from whetstone.judge.harness.asked import CONVERSIONS
from whetstone.judge.kinds.constants import constant
from whetstone.judge.values import NotInert, encode
from whetstone.syntax import nodes

MOST_ASKED_BYTES = 64 << 10
"""Of all requests of one run together: they find room on the way to any program that reads each before it
answers."""
_MOST_EXPECTED_BYTES = 256 << 10
"""Of a literal: what is equal to it is no longer than what may be answered, however it is written."""
_MOST_CODE = 256 << 10
"""Characters of test code that is read here, and what it says kept."""
_ALWAYS_THERE = frozenset(
    {"bisect", "collections", "copy", "datetime", "functools", "heapq", "itertools", "json", "math"}
    | {"operator", "os", "random", "re", "string", "sys", "time", "typing"}
)
_MAX_REASON = 300
_SHOWS = frozenset({"str", "repr", "len"})


class NotPlain(Exception):
    """Only a testing process can say what comes of it."""


class Rule(NamedTuple):
    """What decides on a value."""

    right: Callable[[Any], bool]
    """Of a plain one. Raises what the test would raise."""
    unplain: bool | None
    """The same of a value that has no plain form; None where its truth has to be known."""
    expected: object
    expected_bytes: int
    """How much it takes, written as an answer is."""
    answer: bytes | None = None
    """An answer that is right, byte by byte, and need not be read; None where none is known."""


class Plain(NamedTuple):
    """One assert: the program is asked ``request``, and ``rule`` decides."""

    request: bytes
    rule: Rule
    reason: str
    """Why the program fails where it is not right."""
    missing: str
    """Why it fails where it does not define the function."""


def plain_asserts(unit: dict[str, Any]) -> Sequence[Plain] | None:
    """The asserts of a unit (see ``pair.unit_of``) in turn; None where a testing process has to run it."""
    if unit["inseparable"] or unit["captures"] or unit["seeds"] or unit["files"] is not None:
        return None
    if unit["classes"]:  # their objects are no plain values, and have operators of their own
        return None
    code = f"{unit['setup']}\n{unit['code']}"
    if len(code) > _MOST_CODE:
        return None
    names, free = frozenset[str](unit["names"]), frozenset[str](unit["free"])
    return _plain_asserts(unit["kind"], code, unit["entry_point"], names, free)


@lru_cache(maxsize=512)
def _plain_asserts(
    kind: str, code: str, entry_point: str | None, names: frozenset[str], free: frozenset[str]
) -> Sequence[Plain] | None:
    known = {name: name for name in ([entry_point] if entry_point else names)}
    if entry_point and "candidate" in free:
        known["candidate"] = entry_point
    module = nodes(code)[0]
    assert isinstance(module, ast.Module)
    try:
        body = [node for node in module.body if not _does_nothing(node, names)]
        if kind == "check" and entry_point:
            function = _check(body)
            known[function.args.args[0].arg] = entry_point
            body = [node for node in function.body if not _does_nothing(node)]
        elif kind != "asserts":
            return None
        reader = _Asserts(known, names | known.keys(), code.splitlines(), entry_point)
        return [reader.read(node) for node in body] or None
    except (NotPlain, NotInert, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return None


def _does_nothing(node: ast.stmt, names: frozenset[str] | None = None) -> bool:
    """Whether a statement cannot fail, and binds nothing that an assert could mean. Raises ValueError.

    Imports are such statements where the ``names`` of the program are given, and not among what they bind.
    """
    match node:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Assert(test=ast.Constant(value=value)):
            return bool(value)
        case ast.Import(names=found) if names is not None:
            return all(a.name in _ALWAYS_THERE - names and a.asname is None for a in found)
        case ast.Assign(targets=[ast.Name(id="METADATA")], value=value) if names is not None:
            ast.literal_eval(value)
            return True
        case _:
            return False


def _check(body: list[ast.stmt]) -> ast.FunctionDef:
    """``check``, of one parameter, which must be all that there is."""
    match body:
        case [ast.FunctionDef(name="check", args=parameters, decorator_list=[]) as function]:
            # No defaults, no other kind of parameter: each would be a node.
            if len(parameters.args) == 1 and [*ast.iter_child_nodes(parameters)] == parameters.args:
                return function
        case _:
            pass
    raise NotPlain


class _Asserts:
    """Reads asserts one by one. Raises NotPlain, NotInert, and what Python raises in reckoning constants."""

    def __init__(
        self, known: dict[str, str], taken: frozenset[str], lines: list[str], entry_point: str | None
    ) -> None:
        """``known``: what names in the test are of the program's functions; ``taken``: all that are not
        Python's own."""
        self._known, self._taken = known, taken
        self._lines, self._entry_point = lines, entry_point

    def read(self, node: ast.stmt) -> Plain:
        """What this statement asks and expects."""
        match node:
            case ast.Assert(test=test, msg=message):
                reason = self._reason(node, message)
                call, rule = self._asked(test)
                request, name = self._request(call)
                missing = f"the program defines no `{name}`"
                return Plain(request, rule, reason, missing if self._entry_point else f"NameError: {missing}")
            case _:
                raise NotPlain

    def _reason(self, node: ast.Assert, message: ast.expr | None) -> str:
        """What is said of a failure: the message, or the line where the message would ask the program."""
        if isinstance(message, ast.Constant) and str(message.value):
            return str(message.value)[:_MAX_REASON]
        if message is not None and not isinstance(message, ast.Constant):
            self._shows(message)
        return self._lines[node.lineno - 1].strip()[:_MAX_REASON]

    def _shows(self, message: ast.expr) -> None:
        """Let through a message that says a constant, or what the program answers: once it has failed,
        nothing that comes of that is to change it."""
        match message:
            case ast.Call(func=ast.Name(id=name), args=[shown], keywords=[]) if name in _SHOWS - self._taken:
                self._shows(shown)
            case ast.Call():
                self._request(message)
            case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
                self._shows(left)
                self._shows(right)
            case ast.JoinedStr(values=parts):
                for part in parts:
                    self._shows(part.value if isinstance(part, ast.FormattedValue) else part)
            case _:
                constant(message, self._taken)

    def _request(self, call: ast.expr) -> tuple[bytes, str]:
        """What to send for a call of the program's, and the function's name."""
        conversion: list[str] = []
        match call:
            case ast.Call(func=ast.Name(id=name), args=[ast.Call() as inner], keywords=[]):
                if name in CONVERSIONS.keys() - self._taken:
                    call, conversion = inner, [name]
            case _:
                pass
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise NotPlain
        if call.func.id not in self._known:
            raise NotPlain
        args = [constant(argument, self._taken) for argument in call.args]
        kwargs = {keyword.arg: constant(keyword.value, self._taken) for keyword in call.keywords}
        if None in kwargs or len(kwargs) != len(call.keywords):
            raise NotPlain
        name = self._known[call.func.id]
        return encode([name, args, kwargs, *conversion], max_bytes=MOST_ASKED_BYTES), name

    def _asked(self, test: ast.expr) -> tuple[ast.expr, Rule]:
        """The call in what is asserted, and the rule for what it returns."""
        match test:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
                call, expected = self._sides(left, right)
                answer = encode(["value", expected], max_bytes=_MOST_EXPECTED_BYTES)
                wanted = isinstance(op, ast.Eq)
                right = partial(_equal, expected, wanted)
                return call, Rule(right, not wanted, expected, len(answer), answer if wanted else None)
            case ast.Compare(
                left=call, ops=[ast.Is()], comparators=[ast.Constant(value=True | False | None as it)]
            ):
                return call, Rule(partial(operator.is_, it), False, it, 1)
            case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() as op], comparators=[right]):
                return self._near(left, op, right)
            case ast.UnaryOp(op=ast.Not(), operand=call):
                return call, Rule(partial(_true, False), None, False, 1)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr="isclose")):
                return self._close(test)
            case _:
                return test, Rule(partial(_true, True), None, True, 1)

    def _sides(self, left: ast.expr, right: ast.expr) -> tuple[ast.expr, Any]:
        """The side that calls the program, and what the other one stands for."""
        try:
            return left, constant(right, self._taken)
        except ValueError:
            return right, constant(left, self._taken)

    def _close(self, test: ast.Call) -> tuple[ast.expr, Rule]:
        """``math.isclose(call, literal, …)``."""
        if "math" in self._taken:
            raise NotPlain
        call, other = test.args
        expected = constant(other, self._taken)
        within = {str(keyword.arg): constant(keyword.value, self._taken) for keyword in test.keywords}
        right = partial(math.isclose, b=expected, **within)
        right(1.0)  # raises what a test that is wrong itself raises
        return call, Rule(right, False, expected, len(encode(expected)))

    def _near(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> tuple[ast.expr, Rule]:
        """``abs(call - number) < number``."""
        match left:
            case ast.Call(
                func=ast.Name(id="abs"), args=[ast.BinOp(left=one, op=ast.Sub(), right=other)], keywords=[]
            ) if "abs" not in self._taken:
                call, expected = self._sides(one, other)
                most = constant(right, self._taken)
                if type(expected) not in (int, float) or type(most) not in (int, float):
                    raise NotPlain
                under = operator.lt if isinstance(op, ast.Lt) else operator.le
                return call, Rule(partial(_within, expected, under, most), False, expected, 9)
            case _:
                raise NotPlain


def _equal(expected: object, wanted: bool, value: object) -> bool:
    return bool(value == expected) is wanted


def _within(expected: Any, under: Callable[[Any, Any], bool], most: Any, value: Any) -> bool:
    return bool(under(abs(value - expected), most))


def _true(wanted: bool, value: Any) -> bool:
    """Of a value as it was before it was read."""
    return bool(value.items if isinstance(value, Inert) else value) is wanted
