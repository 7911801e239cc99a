"""Read assert tests that only compare the result of one call with a literal.

Such a test needs no test process: the judge can send the calls and compare the answers itself, which saves a
process. All other tests run in a test process (see ``assert_processes``). The decision uses the problem
alone.

Constants are literals and short calculations such as ``3 * 5 * 7``. The judge evaluates them in its own
process, so the size of each result is limited. Test code with larger calculations runs in a test process.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

from whetstone.core.asserted_call import Assertion, check_parameter, read_arguments, read_assertion
from whetstone.core.syntax import nodes
from whetstone.judge.answers.inert import Inert
from whetstone.judge.rpc.program_server import CONVERSIONS
from whetstone.judge.values import NotInert, encode

# The limit of all requests of one run together. They fit into the buffer of the link, so the judge never
# waits for the program to read.
MAX_REQUEST_BYTES = 64 << 10
# The limit of an encoded literal. Every equal value then fits into an answer, however it is encoded.
_MAX_EXPECTED_BYTES = 256 << 10
# Longer test code is not analysed here, because the result is kept.
_MAX_CODE_CHARS = 256 << 10
# Importing one of these modules cannot fail and has no side effects.
_STANDARD_MODULES = frozenset(
    {"bisect", "collections", "copy", "datetime", "functools", "heapq", "itertools", "json", "math"}
    | {"operator", "os", "random", "re", "string", "sys", "time", "typing"}
)
# The largest operand and result of integer arithmetic.
_MAX_INTEGER_BITS = 4096
# The largest length of a text or list that is made by repetition or concatenation.
_MAX_SEQUENCE_LENGTH = 64 << 10
_SCALARS = frozenset((bool, int, float, complex, str, bytes, type(None)))
_SEQUENCES = frozenset((str, bytes, list, tuple))
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "set": set,
    "frozenset": frozenset,
    "tuple": tuple,
    "list": list,
}
_MAX_REASON = 300
_MESSAGE_FUNCTIONS = frozenset({"str", "repr", "len"})


class _NotPlain(Exception):
    """The test needs a test process."""


class Rule(NamedTuple):
    """How an answer is compared."""

    right: Callable[[Any], bool]
    """Returns whether a plain value is correct. Raises the exceptions that the test would raise."""
    unplain: bool | None
    """Whether a value without a plain form is correct; None if this depends on its truth."""
    expected: object
    expected_bytes: int
    """The size of the expected value in the encoding of answers."""
    answer: bytes | None = None
    """The encoding of a correct answer, if one is known. An equal answer need not be decoded."""


class Plain(NamedTuple):
    """One assert: the judge sends ``request``, and ``rule`` compares the answer."""

    request: bytes
    rule: Rule
    reason: str
    """The reason of the failure for an incorrect answer."""
    missing: str
    """The reason of the failure for a function that is not defined."""


def plain_asserts(unit: dict[str, Any]) -> Sequence[Plain] | None:
    """Return the asserts of a unit (see ``assert_processes.unit_of``) in order.

    None if a test process must run it.
    """
    if unit["inseparable"] or unit["captures"] or unit["seeds"] or unit["files"] is not None:
        return None
    # Objects of classes are no plain values, and have operators of their own.
    if unit["classes"]:
        return None
    code = f"{unit['setup']}\n{unit['code']}"
    if len(code) > _MAX_CODE_CHARS:
        return None
    names, free = frozenset[str](unit["names"]), frozenset[str](unit["free"])
    return _plain_asserts(unit["kind"], code, unit["entry_point"], names, free)


@lru_cache(maxsize=2048)
def _plain_asserts(
    kind: str, code: str, entry_point: str | None, names: frozenset[str], free: frozenset[str]
) -> Sequence[Plain] | None:
    known = {name: name for name in ([entry_point] if entry_point else names)}
    if entry_point and "candidate" in free:
        known["candidate"] = entry_point
    module = nodes(code)[0]
    assert isinstance(module, ast.Module)
    try:
        body = [node for node in module.body if not _has_no_effect(node, names)]
        if kind == "check" and entry_point:
            function = _check_function(body)
            known[function.args.args[0].arg] = entry_point
            body = [node for node in function.body if not _has_no_effect(node)]
        elif kind != "asserts":
            return None
        reader = _Asserts(known, names | known.keys(), code.splitlines(), entry_point)
        return [reader.read(node) for node in body] or None
    except (_NotPlain, NotInert, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return None


def _has_no_effect(node: ast.stmt, names: frozenset[str] | None = None) -> bool:
    """Return whether a statement cannot fail and binds no name that an assert could use. Raises ValueError.

    Imports are such statements if ``names`` of the program are given and the import binds none of them.
    """
    match node:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Assert(test=ast.Constant(value=value)):
            return bool(value)
        case ast.Import(names=found) if names is not None:
            return all(a.name in _STANDARD_MODULES - names and a.asname is None for a in found)
        case ast.Assign(targets=[ast.Name(id="METADATA")], value=value) if names is not None:
            ast.literal_eval(value)
            return True
        case _:
            return False


def _check_function(body: list[ast.stmt]) -> ast.FunctionDef:
    """Return the function ``check`` with one parameter, if it is the only statement. Raises NotPlain."""
    match body:
        case [ast.FunctionDef(name="check", decorator_list=[]) as function] if check_parameter(function):
            return function
        case _:
            raise _NotPlain


class _Asserts:
    """Reads asserts one by one. Raises _NotPlain, NotInert, and the errors of evaluating constants."""

    def __init__(
        self, known: dict[str, str], taken: frozenset[str], lines: list[str], entry_point: str | None
    ) -> None:
        """``known`` maps names in the test to functions of the program. ``taken``: names that are not
        builtins there."""
        self._known, self._taken = known, taken
        self._lines, self._entry_point = lines, entry_point

    def read(self, node: ast.stmt) -> Plain:
        """Return the request and the rule of a statement."""
        match node:
            case ast.Assert(test=test, msg=message):
                reason = self._reason(node, message)
                call, rule = self._call_and_rule(test)
                request, name = self._request(call)
                missing = f"the program defines no `{name}`"
                return Plain(request, rule, reason, missing if self._entry_point else f"NameError: {missing}")
            case _:
                raise _NotPlain

    def _reason(self, node: ast.Assert, message: ast.expr | None) -> str:
        """Return the reason of a failure: the message if it is constant, else the source line."""
        if isinstance(message, ast.Constant) and str(message.value):
            return str(message.value)[:_MAX_REASON]
        if message is not None and not isinstance(message, ast.Constant):
            self._check_message(message)
        return self._lines[node.lineno - 1].strip()[:_MAX_REASON]

    def _check_message(self, message: ast.expr) -> None:
        """Raise _NotPlain for a message that is neither a constant nor made of answers of the program.

        The message is evaluated only after the failure, which it cannot change. So the program need not be
        called for it.
        """
        match message:
            case ast.Call(func=ast.Name(id=name), args=[shown], keywords=[]) if (
                name in _MESSAGE_FUNCTIONS - self._taken
            ):
                self._check_message(shown)
            case ast.Call():
                self._request(message)
            case ast.BinOp(left=left, op=ast.Add() | ast.Mod(), right=right):
                self._check_message(left)
                self._check_message(right)
            case ast.JoinedStr(values=parts):
                for part in parts:
                    self._check_message(part.value if isinstance(part, ast.FormattedValue) else part)
            case _:
                self._constant(message)

    def _request(self, call: ast.expr) -> tuple[bytes, str]:
        """Return the encoded request for a call of the program, and the name of the function."""
        conversion: list[str] = []
        match call:
            case ast.Call(func=ast.Name(id=name), args=[ast.Call() as inner], keywords=[]):
                if name in CONVERSIONS.keys() - self._taken:
                    call, conversion = inner, [name]
            case _:
                pass
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise _NotPlain
        if call.func.id not in self._known:
            raise _NotPlain
        args, kwargs = read_arguments(call, self._constant)
        name = self._known[call.func.id]
        return encode([name, args, kwargs, *conversion], max_bytes=MAX_REQUEST_BYTES), name

    def _call_and_rule(self, test: ast.expr) -> tuple[ast.expr, Rule]:
        """Return the call in an asserted expression, and the rule for its result."""
        assertion = read_assertion(test)
        call, expected = assertion.split(self._constant)
        match assertion.relation:
            case "equal" | "unequal" as relation:
                answer = encode(["value", expected], max_bytes=_MAX_EXPECTED_BYTES)
                wanted = relation == "equal"
                right = partial(_is_equal, expected, wanted)
                return call, Rule(right, not wanted, expected, len(answer), answer if wanted else None)
            case "is" if expected is None or isinstance(expected, bool):
                return call, Rule(partial(operator.is_, expected), False, expected, 1)
            case "true" | "false":
                return call, Rule(partial(_has_truth, expected), None, expected, 1)
            case "distance":
                return call, self._distance_rule(assertion, expected)
            case "close" if assertion.function == "math.isclose" and "math" not in self._taken:
                within = {name: self._constant(node) for name, node in assertion.tolerance}
                right = partial(math.isclose, b=expected, **within)
                # A trial call raises the error of invalid tolerances, with which the test cannot be plain.
                right(1.0)
                return call, Rule(right, False, expected, len(encode(expected)))
            case _:
                raise _NotPlain

    def _distance_rule(self, assertion: Assertion, expected: object) -> Rule:
        """Return the rule of ``abs(call - number) < number``."""
        [(sign, limit)] = assertion.tolerance
        most = self._constant(limit)
        if "abs" in self._taken or type(expected) not in (int, float) or type(most) not in (int, float):
            raise _NotPlain
        under = operator.lt if sign == "<" else operator.le
        return Rule(partial(_is_within, expected, under, most), False, expected, 9)

    def _constant(self, node: ast.expr) -> Any:
        return _constant(node, self._taken)


def _is_equal(expected: object, wanted: bool, value: object) -> bool:
    return bool(value == expected) is wanted


def _is_within(expected: Any, under: Callable[[Any, Any], bool], limit: Any, value: Any) -> bool:
    return bool(under(abs(value - expected), limit))


def _has_truth(wanted: bool, value: Any) -> bool:
    """Return whether the truth of the value that ``value`` was read from is ``wanted``."""
    return bool(value.items if isinstance(value, Inert) else value) is wanted


def _constant(node: ast.expr, taken: Collection[str] = ()) -> Any:
    """Return the value of an expression. ``taken``: names that do not have their builtin meaning there.

    Raises ValueError for an expression that is not constant or whose value is too large, and the errors of
    Python's operators.
    """
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _evaluate(node, taken)


def _evaluate(node: ast.expr, taken: Collection[str]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [_evaluate(item, taken) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_evaluate(item, taken) for item in items)
        case ast.Set(elts=items):
            return {_evaluate(item, taken) for item in items}
        case ast.Dict(keys=keys, values=values):
            # The key of `**mapping` is None. Without it, there is a value too many, which raises ValueError.
            pairs = zip([key for key in keys if key is not None], values, strict=True)
            return {_evaluate(key, taken): _evaluate(value, taken) for key, value in pairs}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _check_number(_evaluate(operand, taken))
            return -value if isinstance(sign, ast.USub) else +value
        case ast.BinOp(left=left, op=op, right=right):
            return _apply(op, _evaluate(left, taken), _evaluate(right, taken))
        case ast.Call(func=ast.Name(id=name), args=items, keywords=[]) if (
            name in _CONSTRUCTORS.keys() - taken
        ):
            return _CONSTRUCTORS[name](*(_evaluate(item, taken) for item in items))
        case _:
            raise ValueError("not a constant")


def _apply(op: ast.operator, left: Any, right: Any) -> Any:
    """Return ``left op right``. Raises ValueError if the operation could take long."""
    apply = _OPERATORS.get(type(op))
    if apply is None:
        raise ValueError("not a constant")
    texts = {type(left), type(right)} & _SEQUENCES
    if not texts:
        _check_number(left)
        exponent = _check_number(right)
        whole = type(left) is int and type(exponent) is int
        if whole and apply is operator.pow and left.bit_length() * exponent > _MAX_INTEGER_BITS:
            raise ValueError("too large")
        return _check_number(apply(left, exponent))
    if apply is operator.add and type(left) is type(right):
        length = len(left) + len(right)
    elif apply is operator.mul and int in (type(left), type(right)):
        text, times = (right, left) if type(left) is int else (left, right)
        # A repeated nested list repeats its contents, so its length would not limit its size.
        if not isinstance(text, (str, bytes)) and not _SCALARS.issuperset(map(type, text)):
            raise ValueError("not a constant")
        length = len(text) * max(times, 0)
    else:
        raise ValueError("not a constant")
    if length > _MAX_SEQUENCE_LENGTH:
        raise ValueError("too large")
    return apply(left, right)


def _check_number(value: Any) -> Any:
    """Return ``value``. Raises ValueError for a value that may not be an operand."""
    # A nan is refused: it is equal to no value, not even to itself.
    if not isinstance(value, (int, float, complex)) or value != value:
        raise ValueError("not a number")
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        raise ValueError("too large")
    return cast("Any", value)
