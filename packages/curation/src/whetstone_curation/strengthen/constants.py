"""Constants of a reference. Inputs that contain them reach branches that other inputs rarely reach."""

from __future__ import annotations

import ast

import msgspec
from msgspec import Struct

from whetstone.core.problem import Program
from whetstone.core.syntax import NotPython, nodes
from whetstone.data.validate.runs import is_python
from whetstone_curation.strengthen.schema import Schema

_LONGEST_WORD, _MOST = 40, 24
_LARGEST = 1_000_000


class Constants(Struct, frozen=True):
    """The strings and numbers of a program, without its documentation; each number with its neighbours."""

    words: tuple[str, ...] = ()
    numbers: tuple[int | float, ...] = ()


NO_CONSTANTS = Constants()


def constants_of(program: Program) -> Constants:
    """Return the constants of a program. It has none if it is not in Python."""
    if not is_python(program):
        return NO_CONSTANTS
    try:
        found = nodes(program.source)
    except NotPython:
        return NO_CONSTANTS
    documentation = {id(node.value) for node in found if isinstance(node, ast.Expr)}
    values = [
        node.value for node in found if isinstance(node, ast.Constant) and id(node) not in documentation
    ]
    words = [each for each in values if isinstance(each, str) and 0 < len(each) <= _LONGEST_WORD]
    numbers = [
        each + step
        for each in values
        if isinstance(each, int | float) and not isinstance(each, bool) and abs(each) <= _LARGEST
        for step in (0, -1, 1)
    ]
    return Constants(tuple(dict.fromkeys(words))[:_MOST], tuple(dict.fromkeys(numbers))[:_MOST])


def with_constants(schema: Schema, constants: Constants) -> Schema:
    """Return the schema of values that may have these words, letters and numbers.

    Strings with few letters, fixed choices or a template have no others. White space is not added, because
    strings without it are often parts of a text that is split there.
    """

    def changed(part: Schema | None) -> Schema | None:
        return None if part is None else with_constants(part, constants)

    schema = msgspec.structs.replace(
        schema,
        items=changed(schema.items),
        keys=changed(schema.keys),
        fields=tuple(map(changed, schema.fields)),
        options=tuple(map(changed, schema.options)),
    )
    if schema.kind == "int":
        return msgspec.structs.replace(
            schema, numbers=tuple(n for n in constants.numbers if isinstance(n, int))
        )
    if schema.kind == "float":
        return msgspec.structs.replace(schema, numbers=constants.numbers)
    if schema.kind != "str" or schema.few or schema.choices or schema.template:
        return schema
    marks = {letter for word in constants.words for letter in word if not letter.isspace()}
    letters = "".join(sorted({*schema.letters, *marks}))
    return msgspec.structs.replace(schema, letters=letters, words=constants.words)
