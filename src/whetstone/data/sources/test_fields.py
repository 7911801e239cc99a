"""Read the tests of a problem in the forms that datasets use.

A field is the value itself, or text that packs it (see ``packed``). The value is one of

- columns: ``{"inputs": […], "outputs": […]}`` or ``{"input": […], "output": […]}``, with ``fn_name`` for
  calls of a function;
- rows: ``[{"input": …, "output": …, "type" or "testtype": …, "fn_name" or "metadata": {"func_name"}}, …]``;
- a list of assert statements;
- one of these below ``test_cases`` or ``tests``.

The input of a program is text, or a list of its lines. The input of a function is a list of arguments, and
its result is in a list of one. Or they are text: one JSON value a line for the arguments, and one for the
result.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple, cast, get_args

import msgspec
from msgspec import UNSET

from whetstone.core.call_tests import RETURNED, NodeForm, ResultArgument
from whetstone.core.long_integers import format_integer
from whetstone.core.problem import AssertTests, CallCase, CallTests, StdinCase, StdinTests, Tests
from whetstone.core.syntax import parsed
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.source import Skip

_CALLED = frozenset({"functional", "function_call", "call", "call_based", "fn_call"})
_READ = frozenset({"stdin", "stdin_stdout", "stdio", "standard_input"})
# The parts of annotations that do not matter here, such as brackets that close.
_DECORATION = re.compile(r"Optional\[|['\" \]]|\|None|typing\.")
_NODE_FORMS: dict[str, NodeForm] = {form.lower().rstrip("]"): form for form in get_args(NodeForm)}
_WRAPPERS = ("test_cases", "tests")
_COLUMNS = (("inputs", "outputs"), ("input", "output"))
_SOLUTION = re.compile(r"^class\s+Solution\b", re.MULTILINE)
_DEFINED = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)


class _Written(NamedTuple):
    inputs: list[Any]
    outputs: list[Any]
    called: bool
    function: str | None


class _Signature(NamedTuple):
    argument_counts: range
    """Numbers of positional arguments."""
    list_depth: int
    """The depth of nested lists in the annotation of the result; 0 without one."""
    nodes: dict[str, NodeForm]
    """The linked lists and trees among arguments and result, by the annotations."""
    returns_none: bool
    """Whether the result is annotated as None: LeetCode's functions then change their first argument."""


def read_tests(
    field: Any,
    *,
    function: str | None = None,
    starter: str = "",
    programs: Sequence[str] = (),
    called: bool | None = None,
) -> Tests:
    """Return the tests in ``field``, in any of the forms above, or ``field`` itself if it was read before.

    ``function`` is the name of the function that is called, if another field states it. ``starter`` and
    ``programs``, the references, show what fields may omit: that name, whether it is a method of
    ``class Solution``, and the number of its arguments. ``called`` states whether a function is called, if
    that is known. Raises Skip with the reason for a field without
    tests that can be judged.
    """
    if isinstance(field, StdinTests | CallTests | AssertTests):
        return field
    value = _unwrap(field)
    if not value:
        raise Skip("no_tests", "the tests are empty")
    if isinstance(value, list) and all(isinstance(item, str) for item in cast(list[Any], value)):
        statements = cast(list[str], value)
        if not all(statement.lstrip().startswith("assert") for statement in statements):
            raise Skip("malformed_tests", "the tests are texts, but not assert statements")
        return AssertTests(asserts=statements)
    written = _columns(value, function) if isinstance(value, dict) else _rows(value, function)
    if not written.inputs:
        raise Skip("no_tests", "the tests are empty")
    if not (written.called if called is None else called):
        cases = [StdinCase(_stdin_text(i), _stdin_text(o)) for i, o in _pairs(written)]
        return StdinTests(cases)
    name = written.function or _only_function(starter)
    if not name.isidentifier():
        raise Skip("malformed_tests", f"`{name}` is not a function name")
    signature = _signature(name, (starter, *programs))
    cases = _calls(written, signature)
    tests = CallTests(
        cases,
        function=name,
        class_="Solution" if in_solution(starter, programs) else None,
    )
    return tests if signature is None else _with_results(tests, signature)


def _with_results(tests: CallTests, signature: _Signature) -> CallTests:
    """Return the tests with the place of the result and the nodes that the annotations state, if they fit."""
    in_place = signature.returns_none and all(case.expected is not None for case in tests.cases)
    nodes = dict(signature.nodes)
    if in_place and RETURNED in nodes:
        del nodes[RETURNED]
    try:
        return msgspec.structs.replace(
            tests, result=ResultArgument(0) if in_place else UNSET, nodes=nodes or UNSET
        )
    except ValueError:
        return tests


def in_solution(starter: str, programs: Sequence[str]) -> bool:
    """Return whether the function is a method of ``class Solution``, by the starter, or else by all
    references."""
    if _DEFINED.search(starter):
        return bool(_SOLUTION.search(starter))
    return bool(programs) and all(_SOLUTION.search(program) for program in programs)


def _unwrap(field: Any) -> Any:
    """Return the value, unpacked and without wrappers."""
    value = field
    # No known set has more levels.
    for _ in range(4):
        if isinstance(value, str):
            value = unpack(value, "tests")
            continue
        inner = [name for name in _WRAPPERS if isinstance(value, dict) and name in value]
        if not inner:
            break
        value = cast(dict[str, Any], value)[inner[0]]
    return value


def _columns(value: dict[str, Any], default: str | None) -> _Written:
    names = next((pair for pair in _COLUMNS if all(name in value for name in pair)), None)
    if names is None:
        raise Skip("malformed_tests", f"the tests have no inputs and outputs, but {', '.join(value)[:100]}")
    inputs, outputs = value[names[0]], value[names[1]]
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise Skip("malformed_tests", f"`{names[0]}` and `{names[1]}` are not two lists")
    given, expected = cast(list[Any], inputs), cast(list[Any], outputs)
    # Without one of the two, it is not known which input an output belongs to.
    if len(given) != len(expected):
        raise Skip("malformed_tests", f"{len(given)} inputs, but {len(expected)} outputs")
    function = _function(value) or default
    return _Written(given, expected, _is_called(value, function), function)


def _rows(value: Any, default: str | None) -> _Written:
    rows = cast(list[Any], value) if isinstance(value, list) else None
    if rows is None or not all(isinstance(row, dict) and "input" in row and "output" in row for row in rows):
        raise Skip("malformed_tests", "the tests are not a list of objects with `input` and `output`")
    functions = [_function(row) or default for row in rows]
    called = [_is_called(row, function) for row, function in zip(rows, functions, strict=True)]
    # A problem has one kind of test.
    if len(set(called)) > 1:
        raise Skip("mixed_tests", "some tests call a function, others read standard input")
    named = sorted({function for function in functions if function})
    if len(named) > 1:
        raise Skip("mixed_tests", f"the tests call several functions: {', '.join(named)[:100]}")
    inputs, outputs = [row["input"] for row in rows], [row["output"] for row in rows]
    return _Written(inputs, outputs, any(called), named[0] if named else None)


def _function(value: dict[str, Any]) -> str | None:
    """Return the name of the called function; None if there is none."""
    metadata = value.get("metadata")
    if isinstance(metadata, str) and metadata.strip():
        metadata = unpack(metadata, "metadata")
    mappings = [value, cast(dict[str, Any], metadata)] if isinstance(metadata, dict) else [value]
    names = [holder.get(key) for holder in mappings for key in ("fn_name", "func_name")]
    return next((name for name in names if isinstance(name, str) and name.strip()), None)


def _is_called(value: dict[str, Any], function: str | None) -> bool:
    kind = value.get("type") or value.get("testtype")
    # Some sets have a type for each test.
    if isinstance(kind, list):
        kinds = cast(list[Any], kind)
        if len({str(name) for name in kinds}) > 1:
            raise Skip("mixed_tests", "some tests call a function, others read standard input")
        kind = kinds[0] if kinds else None
    if kind is None:
        return function is not None
    if not isinstance(kind, str) or kind not in _CALLED | _READ:
        raise Skip("unknown_test_type", f"tests of the type {kind!r}")
    return kind in _CALLED


def _pairs(written: _Written) -> list[tuple[Any, Any]]:
    return list(zip(written.inputs, written.outputs, strict=True))


def _stdin_text(value: Any) -> str:
    """Return the text; of a list, its lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        lines = [_line(line) for line in cast(list[Any], value)]
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    return _line(value)


def _line(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format_integer(value) if isinstance(value, int) else str(value)
    raise Skip("malformed_tests", f"a test of a program is a {type(value).__name__}, not text")


def _calls(written: _Written, signature: _Signature | None) -> list[CallCase]:
    """Return the cases of a function.

    Whether results are in a list of one is decided for all cases together, because a function may sometimes
    return a list of one element.
    """
    pairs = _pairs(written)
    if any(isinstance(given, str) for given in written.inputs):
        values = [(_argument_lines(given), _answer(expected)) for given, expected in pairs]
        if signature is None or not all(
            _is_argument_list(given, signature.argument_counts) for given, _ in values
        ):
            return [CallCase(args=given, expected=expected) for given, expected in values]
        pairs = [(given[0], expected) for given, expected in values]
    if not all(isinstance(given, list) for given, _ in pairs):
        raise Skip("malformed_tests", "an input of a called function is not a list of arguments")
    # A function that returns lists of lists has deeper results that are not in a list of one.
    within = signature.list_depth if signature is not None else 0
    wrapped = all(isinstance(e, list) and len(e) == 1 and _depth(e) > within for _, e in pairs)
    return [CallCase(args=given, expected=expected[0] if wrapped else expected) for given, expected in pairs]


def _is_argument_list(values: list[Any], argument_counts: range) -> bool:
    """Return whether the only value of an input is the list of arguments, and cannot be the
    argument itself."""
    only = values[0] if len(values) == 1 else None
    return (
        isinstance(only, list) and 1 not in argument_counts and len(cast(list[Any], only)) in argument_counts
    )


def _depth(value: Any) -> int:
    """Return the number of lists around the innermost first element."""
    if not isinstance(value, list):
        return 0
    items = cast(list[Any], value)
    return 1 + (_depth(items[0]) if items else 0)


def _argument_lines(given: Any) -> list[Any]:
    """Return arguments that are written one a line."""
    if not isinstance(given, str):
        raise Skip("malformed_tests", "some inputs of a called function are text, others are not")
    return [_value(line) for line in given.strip().split("\n") if line.strip()]


def _answer(expected: Any) -> Any:
    return _value(expected) if isinstance(expected, str) else expected


def _value(text: str) -> Any:
    try:
        return unpack(text, "tests")
    except Skip as skip:
        raise Skip("malformed_tests", f"a value of a called function: {skip.detail}") from None


def _only_function(starter: str) -> str:
    names = [name for name in _DEFINED.findall(starter) if not name.startswith("__")]
    if len(names) != 1:
        raise Skip("no_function_name", "the tests call a function without its name")
    return names[0]


def _signature(function: str, sources: Sequence[str]) -> _Signature | None:
    """Return the signature of a function in the first source that defines it; None if none does."""
    for source in sources:
        # A starter may end before its body, which Python does not parse.
        for text in (source, textwrap.dedent(source).rstrip() + " pass"):
            if (tree := parsed(text)) is None:
                continue
            found = _find_signature(tree, function)
            if found is not None:
                return found
            break
    return None


def _node_form(annotation: ast.expr | None) -> NodeForm | None:
    """Return the form that an annotation such as ``List[Optional[ListNode]]`` states."""
    text = "" if annotation is None else _DECORATION.sub("", ast.unparse(annotation))
    return _NODE_FORMS.get(text.lower())


def _find_signature(tree: ast.Module, function: str) -> _Signature | None:
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.Module | ast.ClassDef):
            continue
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                spec = node.args
                # Methods have `self` in addition.
                most = len(spec.posonlyargs) + len(spec.args) - isinstance(owner, ast.ClassDef)
                argument_counts = range(most - len(spec.defaults), 1 << 20 if spec.vararg else most + 1)
                list_depth = ast.unparse(node.returns).lower().count("list") if node.returns else 0
                args = [*spec.posonlyargs, *spec.args][isinstance(owner, ast.ClassDef) :]
                annotated = {str(place): argument.annotation for place, argument in enumerate(args)}
                nodes: dict[str, NodeForm] = {
                    place: form
                    for place, annotation in (annotated | {RETURNED: node.returns}).items()
                    if (form := _node_form(annotation)) is not None
                }
                returns_none = isinstance(node.returns, ast.Constant) and node.returns.value is None
                return _Signature(argument_counts, list_depth, nodes, returns_none)
    return None
