"""In the testing process: exceptions across the link, either way, from closed lists.

What the program raised becomes an instance of a builtin class that is listed here, or of a class made below
one for a class of the program's. Plain values fill its arguments and its ``__dict__``, never a slot or a
property of the class: members of builtin exceptions are read unchecked by their own ``__str__``.

What the test's functions raised goes back as a builtin class's name. Its arguments go with it only where
test code raised it by a statement of its own: a text that the interpreter makes may hold any value. The
exception itself is kept, so that one which the program lets through reaches the test as it was.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from opcode import opmap
from types import TracebackType
from typing import Any, cast

from whetstone.judge.harness.link import RAISED
from whetstone.judge.values import NotInert, WireError, encode

TEST_FILES = frozenset({"<setup>", "<test>"})
"""The names under which test code is compiled."""
_NAMES = """
BaseException BaseExceptionGroup GeneratorExit KeyboardInterrupt SystemExit Exception ExceptionGroup
ArithmeticError FloatingPointError OverflowError ZeroDivisionError AssertionError AttributeError BufferError
EOFError ImportError ModuleNotFoundError LookupError IndexError KeyError MemoryError NameError
UnboundLocalError OSError BlockingIOError ChildProcessError ConnectionError BrokenPipeError
ConnectionAbortedError ConnectionRefusedError ConnectionResetError FileExistsError FileNotFoundError
InterruptedError IsADirectoryError NotADirectoryError PermissionError ProcessLookupError TimeoutError
ReferenceError RuntimeError NotImplementedError RecursionError StopAsyncIteration StopIteration SyntaxError
IndentationError TabError SystemError TypeError ValueError UnicodeError UnicodeDecodeError
UnicodeEncodeError UnicodeTranslateError Warning BytesWarning DeprecationWarning EncodingWarning
FutureWarning ImportWarning PendingDeprecationWarning ResourceWarning RuntimeWarning SyntaxWarning
UnicodeWarning UserWarning
"""
_BUILTIN: dict[str, type[BaseException]] = {name: getattr(builtins, name) for name in _NAMES.split()}
_CATCH_ALL = (BaseException, Exception)
# Raised by a *call*, these would silently end a loop of the test and so skip its assertions.
_LOOP_ENDERS = (StopIteration, StopAsyncIteration, GeneratorExit)
# What the interpreter says without a value in it.
_CONSTANT_TEXTS = frozenset(
    (
        *("division by zero", "integer division or modulo by zero", "integer modulo by zero"),
        *("float division by zero", "float modulo", "float floor division by zero", "math domain error"),
        *("list index out of range", "tuple index out of range", "string index out of range"),
        *("pop from empty list", "pop from an empty deque", "pop from an empty set", "math range error"),
    )
)
_MAX_CLASSES, _MAX_CHAIN, _MAX_NAME = 1000, 32, 200
_MAX_TOLD = 256
_MAX_POSITION = 1_000_000
_RAISE = opmap["RAISE_VARARGS"]


class Exceptions:
    """The exceptions of one test: made for the program's, and told to the program."""

    def __init__(self) -> None:
        self.classes: dict[int, type[BaseException]] = {}
        """Made here for the program's own classes, by its numbers for them."""
        self._foreign: dict[str, type[BaseException]] = {}
        self._raised: dict[int, BaseException] = {}
        self._told: dict[int, BaseException] = {}
        self._count = 0

    def begin_anew(self) -> None:
        """What was raised so far does not concern what comes."""
        self._raised.clear()

    def raised(self, error: BaseException) -> bool:
        """Whether the program raised it."""
        return id(error) in self._raised

    def read(self, operation: str, reply: list[Any]) -> BaseException:
        """The exception that a reply to ``operation`` describes. Raises WireError for what none can be."""
        match reply:
            case [[chain, str() as base], list() as args, dict() as attributes, (int() | None) as number]:
                error = self._own(number)
                if error is None:
                    plain = _plain(args, attributes)
                    error = _made(self.named(chain, base), *plain)
            case _:
                raise WireError("a malformed exception")
        if operation != "next" and isinstance(error, _LOOP_ENDERS):
            error = RuntimeError(f"the program raised {type(error).__name__}")
        if not (number is not None and isinstance(error, AssertionError)):  # a failed one stays the test's
            self._raised[id(error)] = error
        return error

    def _own(self, number: int | None) -> BaseException | None:
        """An exception of the test's that the program was told of; None for one that was forgotten."""
        if number is None:
            return None
        if not 0 <= number < self._count:
            raise WireError("an unknown exception")
        return self._told.get(number)

    def named(self, chain: object, base: str) -> type[BaseException]:
        """The builtin class, or one made for a class of the program's, the same for the same number.

        Raises WireError for a name that is not listed.
        """
        if base not in _BUILTIN:
            raise WireError("an unknown exception")
        made = _BUILTIN[base]
        if made in _CATCH_ALL or issubclass(made, (AssertionError, SystemExit, KeyboardInterrupt)):
            # A subclass, so that `except AssertionError` finds it and the test's own stays apart: also
            # where a program calls `Exception` its own error, which would catch failed assertions.
            made = self._foreign[base] = self._foreign.get(base) or _subclass(base, made)
        entries = cast("list[Any]", chain) if type(chain) is list else []
        if len(entries) > _MAX_CHAIN or len(self.classes) > _MAX_CLASSES:
            raise WireError("too many classes")
        for entry in reversed(entries):
            match entry:
                case [int() as number, str() as label]:
                    known = self.classes.get(number)
                    made = self.classes[number] = known if known is not None else _subclass(label, made)
                case _:
                    raise WireError("a malformed exception")
        return made

    def told(self, error: BaseException) -> list[Any]:
        """The reply by which the program gets to know of an exception of the test's."""
        number = self._count
        self._count += 1
        self._told[number] = error
        self._told.pop(number - _MAX_TOLD, None)
        return [RAISED, [None, _builtin_base(type(error))], self._arguments(error), {}, number]

    def _arguments(self, error: BaseException) -> list[Any]:
        args = list(BaseException.__dict__["args"].__get__(error))
        if isinstance(error, AssertionError):
            return []  # they often hold the right value
        constant = len(args) == 1 and type(args[0]) is str and args[0] in _CONSTANT_TEXTS
        if not (constant or self.raised(error) or _raised_by_test_code(error.__traceback__)):
            return []
        return args if _is_inert(args) else []


def _plain(args: list[Any], attributes: dict[Any, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Both, if they hold plain values alone, by names that are text. Raises WireError."""
    if not all(type(name) is str for name in attributes) or not _is_inert([args, attributes]):
        raise WireError("an exception that holds more than plain values")
    return args, attributes


def _is_inert(values: list[Any]) -> bool:
    try:
        encode(values)
    except NotInert:
        return False
    return True


def _made(kind: type[BaseException], args: list[Any], attributes: dict[str, Any]) -> BaseException:
    family = next((family for family in _FITTED if issubclass(kind, family)), None)
    try:
        error = kind(*(args if family is None else _FITTED[family](args)))
    except Exception:
        error = kind.__new__(kind)  # an exception of a class whose arguments are unknown
    for name, value in attributes.items():
        if name[:1] != "_" and not any(name in base.__dict__ for base in kind.__mro__):
            error.__dict__[name] = value
    return error


def _unicode(kind: type, before: int) -> Callable[[list[Any]], list[Any]]:
    """Arguments of a Unicode error whose positions lie within its object, which is read there unchecked."""

    def fitted(args: list[Any]) -> list[Any]:
        if len(args) != before + 4 or type(args[before]) is not kind:
            raise ValueError
        start, end = args[before + 1 : before + 3]
        if type(start) is not int or type(end) is not int:
            raise ValueError
        length = len(args[before])
        start = min(max(start, 0), length)
        end = min(max(end, start), length)
        return [*args[: before + 1], start, end, args[-1]]

    return fitted


def _syntax(args: list[Any]) -> list[Any]:
    """A message, and where the error is if that is well-formed: tracebacks draw carets from it."""
    place = args[1] if len(args) == 2 else None
    match place:
        case ((str() | None), *_) if type(place) is tuple and 4 <= len(place) <= 6:
            _, line, offset, text, *ends = cast("tuple[Any, ...]", place)
            numbers = [line, offset, *ends]
            fits = all(n is None or (type(n) is int and abs(n) <= _MAX_POSITION) for n in numbers)
            return args if fits and (text is None or type(text) is str) else args[:1]
        case _:
            return args[:1]


def _group(args: list[Any]) -> list[Any]:
    """Members do not cross, and there is no group without one."""
    return [args[0] if args and type(args[0]) is str else "", [Exception()]]


_FITTED: dict[type[BaseException], Callable[[list[Any]], list[Any]]] = {
    UnicodeDecodeError: _unicode(bytes, 1),
    UnicodeEncodeError: _unicode(str, 1),
    UnicodeTranslateError: _unicode(str, 0),
    SyntaxError: _syntax,
    BaseExceptionGroup: _group,
}


def _raised_by_test_code(trace: TracebackType | None) -> bool:
    """Whether a ``raise`` statement of the test's made the traceback."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return code.co_filename in TEST_FILES and code.co_code[trace.tb_lasti] == _RAISE


def _builtin_base(kind: type) -> str:
    return next(base.__name__ for base in kind.__mro__ if _BUILTIN.get(base.__name__) is base)


def _subclass(label: str, base: type[BaseException]) -> type[BaseException]:
    name = label if label.isidentifier() and len(label) <= _MAX_NAME else "ProgramError"
    return cast("type[BaseException]", type(name, (base,), {}))
