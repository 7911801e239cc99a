"""In the test process: exceptions that cross the link, in both directions, from closed lists.

An exception of the program becomes an instance of a listed builtin class, or of a subclass created for a
class of the program. Plain values fill its arguments and its ``__dict__``, but no slot or property of the
class: the ``__str__`` of builtin exceptions reads such members without a check.

An exception of a test function is sent as the name of a builtin class. Its arguments are sent only if a
``raise`` statement of the test code raised it, because a text of the interpreter may contain any value. The
exception itself is kept. If the program lets it through, the test gets the same object.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from opcode import opmap
from types import TracebackType
from typing import Any, cast

from whetstone.judge.rpc.link import RAISED
from whetstone.judge.values import NotInert, WireError, encode

# The names under which test code is compiled.
TEST_FILES = frozenset({"<setup>", "<test>"})
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
# If a *call* raised one of these, a loop of the test would end without an error and skip assertions.
_LOOP_ENDERS = (StopIteration, StopAsyncIteration, GeneratorExit)
# Texts of the interpreter that contain no value.
_CONSTANT_TEXTS = frozenset(
    (
        *("division by zero", "integer division or modulo by zero", "integer modulo by zero"),
        *("float division by zero", "float modulo", "float floor division by zero", "math domain error"),
        *("list index out of range", "tuple index out of range", "string index out of range"),
        *("pop from empty list", "pop from an empty deque", "pop from an empty set", "math range error"),
    )
)
_MAX_CLASSES, _MAX_CHAIN, _MAX_NAME = 1000, 32, 200
_MAX_SENT = 256
_MAX_POSITION = 1_000_000
_RAISE = opmap["RAISE_VARARGS"]


class Exceptions:
    """The exceptions of one test: those of the program, and those that the program was told of."""

    def __init__(self) -> None:
        self.classes: dict[int, type[BaseException]] = {}
        """The classes created for the program's own exception classes, by their numbers in the program."""
        self._foreign: dict[str, type[BaseException]] = {}
        self._raised: dict[int, BaseException] = {}
        self._sent: dict[int, BaseException] = {}
        self._count = 0

    def reset(self) -> None:
        """Forget the exceptions of the program. They do not belong to the next unit."""
        self._raised.clear()

    def is_from_program(self, error: BaseException) -> bool:
        """Return whether the program raised this exception."""
        return id(error) in self._raised

    def read(self, operation: str, reply: list[Any]) -> BaseException:
        """Return the exception that a reply to ``operation`` describes.

        Raises WireError if it is malformed.
        """
        match reply:
            case [[chain, str() as base], list() as args, dict() as attributes, (int() | None) as number]:
                error = self._find_test_exception(number)
                if error is None:
                    plain = _check_plain(args, attributes)
                    error = _construct(self.class_for(chain, base), *plain)
            case _:
                raise WireError("a malformed exception")
        if operation != "next" and isinstance(error, _LOOP_ENDERS):
            error = RuntimeError(f"the program raised {type(error).__name__}")
        # A failed assertion of the test remains the test's own, even if the program passed it through.
        if not (number is not None and isinstance(error, AssertionError)):
            self._raised[id(error)] = error
        return error

    def _find_test_exception(self, number: int | None) -> BaseException | None:
        """Return an exception of the test by its number; None if it was forgotten."""
        if number is None:
            return None
        if not 0 <= number < self._count:
            raise WireError("an unknown exception")
        return self._sent.get(number)

    def class_for(self, chain: object, base: str) -> type[BaseException]:
        """Return the builtin class, or the class created for the program's class with this number.

        Raises WireError for a name that is not listed.
        """
        if base not in _BUILTIN:
            raise WireError("an unknown exception")
        cls = _BUILTIN[base]
        if cls in _CATCH_ALL or issubclass(cls, (AssertionError, SystemExit, KeyboardInterrupt)):
            # A subclass, so that `except AssertionError` catches it but the test's own failures remain
            # different. This also holds for a program that raises `Exception` itself.
            cls = self._foreign[base] = self._foreign.get(base) or _subclass(base, cls)
        entries = cast("list[Any]", chain) if type(chain) is list else []
        if len(entries) > _MAX_CHAIN or len(self.classes) > _MAX_CLASSES:
            raise WireError("too many classes")
        for entry in reversed(entries):
            match entry:
                case [int() as number, str() as label]:
                    known = self.classes.get(number)
                    cls = self.classes[number] = known if known is not None else _subclass(label, cls)
                case _:
                    raise WireError("a malformed exception")
        return cls

    def describe(self, error: BaseException) -> list[Any]:
        """Return the reply that tells the program of an exception of the test."""
        number = self._count
        self._count += 1
        self._sent[number] = error
        self._sent.pop(number - _MAX_SENT, None)
        kinds = type(error).__mro__
        base = next(kind.__name__ for kind in kinds if _BUILTIN.get(kind.__name__) is kind)
        return [RAISED, [None, base], self._arguments(error), {}, number]

    def _arguments(self, error: BaseException) -> list[Any]:
        args = list(BaseException.__dict__["args"].__get__(error))
        # The message of a failed assertion often contains the expected value.
        if isinstance(error, AssertionError):
            return []
        constant = len(args) == 1 and type(args[0]) is str and args[0] in _CONSTANT_TEXTS
        if not (constant or self.is_from_program(error) or _raised_by_test_code(error.__traceback__)):
            return []
        return args if _is_inert(args) else []


def _check_plain(args: list[Any], attributes: dict[Any, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return both if they contain only plain values and the names are text. Raises WireError."""
    if not all(type(name) is str for name in attributes) or not _is_inert([args, attributes]):
        raise WireError("an exception with values that are not plain")
    return args, attributes


def _is_inert(values: list[Any]) -> bool:
    try:
        encode(values)
    except NotInert:
        return False
    return True


def _construct(kind: type[BaseException], args: list[Any], attributes: dict[str, Any]) -> BaseException:
    family = next((family for family in _ARGUMENT_FITTERS if issubclass(kind, family)), None)
    try:
        error = kind(*(args if family is None else _ARGUMENT_FITTERS[family](args)))
    # The class requires other arguments.
    except Exception:
        error = kind.__new__(kind)
    for name, value in attributes.items():
        if name[:1] != "_" and not any(name in base.__dict__ for base in kind.__mro__):
            error.__dict__[name] = value
    return error


def _fit_unicode_error(kind: type, before: int) -> Callable[[list[Any]], list[Any]]:
    """Return a function that moves the positions of a Unicode error into its object.

    Python does not check them.
    """

    def fit(args: list[Any]) -> list[Any]:
        if len(args) != before + 4 or type(args[before]) is not kind:
            raise ValueError
        start, end = args[before + 1 : before + 3]
        if type(start) is not int or type(end) is not int:
            raise ValueError
        length = len(args[before])
        start = min(max(start, 0), length)
        end = min(max(end, start), length)
        return [*args[: before + 1], start, end, args[-1]]

    return fit


def _fit_syntax_error(args: list[Any]) -> list[Any]:
    """Return a message, and the place of the error if it is valid: tracebacks draw markers with it."""
    place = args[1] if len(args) == 2 else None
    match place:
        case ((str() | None), *_) if type(place) is tuple and 4 <= len(place) <= 6:
            _, line, offset, text, *ends = cast("tuple[Any, ...]", place)
            numbers = [line, offset, *ends]
            fits = all(n is None or (type(n) is int and abs(n) <= _MAX_POSITION) for n in numbers)
            return args if fits and (text is None or type(text) is str) else args[:1]
        case _:
            return args[:1]


def _fit_group(args: list[Any]) -> list[Any]:
    """Return the message with a new member. Members do not cross, and a group must have one."""
    return [args[0] if args and type(args[0]) is str else "", [Exception()]]


_ARGUMENT_FITTERS: dict[type[BaseException], Callable[[list[Any]], list[Any]]] = {
    UnicodeDecodeError: _fit_unicode_error(bytes, 1),
    UnicodeEncodeError: _fit_unicode_error(str, 1),
    UnicodeTranslateError: _fit_unicode_error(str, 0),
    SyntaxError: _fit_syntax_error,
    BaseExceptionGroup: _fit_group,
}


def _raised_by_test_code(trace: TracebackType | None) -> bool:
    """Return whether a ``raise`` statement of the test code created the traceback."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return code.co_filename in TEST_FILES and code.co_code[trace.tb_lasti] == _RAISE


def _subclass(label: str, base: type[BaseException]) -> type[BaseException]:
    name = label if label.isidentifier() and len(label) <= _MAX_NAME else "ProgramError"
    return cast("type[BaseException]", type(name, (base,), {}))
