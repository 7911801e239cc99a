"""The ``call`` tests of a problem: calls of a function, or operations on an object, and their results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

NonEmpty = Annotated[str, Meta(min_length=1)]

# Linked lists and binary trees, which tests write as lists; in LeetCode's form, with null for no child.
NodeForm = Literal["ListNode", "TreeNode", "list[ListNode]", "list[TreeNode]"]
RETURNED = "return"


class CallCase(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments as JSON values, and the expected return value.

    With ``operations`` (class design problems): names of methods, called in order on one object. The
    first is the class itself, which constructs the object. ``args`` and ``expected`` then hold one entry
    for each operation: a list of arguments, and the value returned (null for the constructor).
    """

    expected: Any
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    operations: Annotated[list[str], Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        if self.operations is None:
            return
        _check_names(*self.operations)
        expected = cast("list[Any] | None", self.expected if isinstance(self.expected, list) else None)
        if expected is None or not len(self.operations) == len(self.args) == len(expected):
            raise ValueError("`operations`, `args` and `expected` need one entry for each operation")
        if not all(isinstance(arguments, list) for arguments in self.args):
            raise ValueError("with `operations`, each entry of `args` is a list of arguments")
        if self.kwargs or expected[0] is not None:
            raise ValueError("`operations` take no `kwargs`, and the constructor's `expected` is null")


class ResultArgument(Struct, frozen=True, forbid_unknown_fields=True):
    """The result is an argument after the call: its position, or its name in ``kwargs``."""

    argument: int | str


class CallTests(Struct, frozen=True, forbid_unknown_fields=True, tag="call", tag_field="kind"):
    """Calls a function, method or class of the program, and compares the returned values.

    With ``literals``, every argument and expected value is the text of a Python literal, for values that JSON
    lacks: tuples, sets, complex numbers. See ``whetstone.core.literal``.

    ``function`` alone: a function. ``function`` and ``class``: a method of an object constructed without
    arguments (LeetCode's form). ``class`` alone: every case lists ``operations`` on an object of it.

    ``result``: the function changes an argument in place, and the returned value is ignored. ``no_result``:
    operations whose returned value is ignored.

    ``nodes``: which values are linked lists or trees, by the argument's name, or its position as text, and
    ``return``. With operations, these follow the operation's name: ``insert.0``, ``insert.return``.
    """

    cases: Annotated[list[CallCase], Meta(min_length=1)]
    function: NonEmpty | None = None
    class_: NonEmpty | None = msgspec.field(default=None, name="class")
    literals: bool = False
    # Problems without the following fields are stored as before they existed.
    result: ResultArgument | UnsetType = UNSET
    no_result: list[str] | UnsetType = UNSET
    nodes: dict[str, NodeForm] | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_names(*[name for name in (self.function, self.class_) if name is not None])
        if self.function is None and self.class_ is None:
            raise ValueError("needs a `function`, or a `class` whose cases list `operations`")
        for case in self.cases:
            if (case.operations is None) != (self.function is not None):
                raise ValueError(
                    "cases list `operations` if, and only if, there is a `class` and no `function`"
                )
            if case.operations is not None and case.operations[0] != self.class_:
                raise ValueError(f"the first of `operations` constructs: it is `{self.class_}`")
            if self.literals and not all(isinstance(value, str) for value in _values_of(case)):
                raise ValueError("with `literals`, arguments and expected values are text: Python literals")
        self._check_results()
        if self.nodes:
            self._check_nodes(self.nodes)

    def node_form(self, place: str) -> NodeForm | None:
        """Return the form of the value at a place, as ``nodes`` names it; None for a plain value."""
        return (self.nodes or {}).get(place)

    @property
    def result_place(self) -> str:
        """The place, as ``nodes`` names it, of the result of ``function``."""
        return str(self.result.argument) if self.result else RETURNED

    def _check_results(self) -> None:
        if self.result:
            argument = self.result.argument
            if self.function is None:
                raise ValueError("`result` is for a `function`; of operations, name those in `no_result`")
            if any(argument not in _arguments(case) for case in self.cases):
                raise ValueError(f"`result.argument` is {argument!r}, which is no argument of some case")
        for name in self.no_result or ():
            places = [
                number
                for case in self.cases
                for number, operation in enumerate(case.operations or ())
                if operation == name and case.expected[number] != ("None" if self.literals else None)
            ]
            if places or not any(name in (case.operations or ())[1:] for case in self.cases):
                raise ValueError(f"`no_result` names `{name}`, which is no operation that expects only null")

    def _check_nodes(self, nodes: dict[str, NodeForm]) -> None:
        seen: set[str] = set()
        for case in self.cases:
            for place, value in _places(case, self.result_place):
                form = nodes.get(place)
                seen.add(place)
                if form is not None and not self.literals and not _fits(form, value):
                    raise ValueError(f"`nodes.{place}` is {form}, but a case has a value that is no list")
        if unused := sorted(nodes.keys() - seen):
            raise ValueError(f"`nodes` names `{unused[0]}`, which no case has (known: {', '.join(seen)})")


def _fits(form: NodeForm, value: object) -> bool:
    """Return whether a value is written as the node form requires. None is an empty list or tree."""
    if not form.startswith("list["):
        return value is None or isinstance(value, list)
    inner = cast("list[object]", value) if isinstance(value, list) else [0]
    return all(item is None or isinstance(item, list) for item in inner)


def _arguments(case: CallCase) -> dict[int | str, Any]:
    return {**dict(enumerate(case.args)), **case.kwargs}


def _places(case: CallCase, result_place: str) -> Iterator[tuple[str, Any]]:
    """Yield the arguments and results of a case with their places."""
    if case.operations is None:
        for name, value in _arguments(case).items():
            yield str(name), value
        yield result_place, case.expected
        return
    for name, arguments, expected in zip(case.operations, case.args, case.expected, strict=True):
        for number, value in enumerate(arguments):
            yield f"{name}.{number}", value
        yield f"{name}.{RETURNED}", expected


def _values_of(case: CallCase) -> Iterator[object]:
    """Return the arguments of a case, and its expected values (for operations without that of the
    constructor)."""
    if case.operations is None:
        yield from (*case.args, *case.kwargs.values(), case.expected)
    else:
        yield from (argument for arguments in case.args for argument in arguments)
        yield from case.expected[1:]


def _check_names(*names: str) -> None:
    for name in names:
        if not name.isidentifier():
            raise ValueError(f"`{name}` is not a Python name")
