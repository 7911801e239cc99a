"""The functions of a code base, each without its body or with a mistake."""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from whetstone.core.syntax import NotPython, parse, parsed
from whetstone.data.validate.mutants import mutants
from whetstone.judge.repository.task import is_within
from whetstone_curation.strengthen.subtle_mutations import subtle_operators

# A smaller body is hardly worth a task. In nodes of the syntax tree, without the docstring.
_FEWEST_NODES = 12
_MUTANTS = 2
_INDENTATION = 4
REMOVED, MUTATED = "removed", "mutated"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class SourceFunction(Struct, frozen=True):
    """A function at the top of a module, or a method of a class there.

    path: its file. name: with that of the class. first, last: the numbers of its lines without decorators,
    from 0. body: the first line of its code. docstring: the first and the last line of the docstring.
    """

    path: str
    name: str
    first: int
    last: int
    body: int
    docstring: tuple[int, int] | None
    is_method: bool

    @property
    def short_name(self) -> str:
        """The name by which tests call it; that of the class for special methods."""
        owner, _, name = self.name.rpartition(".")
        return owner if name.startswith("__") else name


class ChangedFunction(NamedTuple):
    """The file of a function after a change. kind: how it was changed. change: the operator and the line."""

    text: str
    kind: str
    change: str


def find_functions(files: Mapping[str, bytes], roots: Iterable[str], seed: str) -> list[SourceFunction]:
    """Return the functions of the packages in ``roots`` that are worth a task. ``seed`` draws their order.

    Modules alternate. Left out are functions whose code another function has as well.
    """
    roots = list(roots)
    found: dict[str, list[SourceFunction]] = {}
    bodies: Counter[str] = Counter()
    body_of: dict[SourceFunction, str] = {}
    for path, data in files.items():
        try:
            tree = parse(data.decode())
        except (NotPython, UnicodeDecodeError):
            continue
        bodies.update(_body(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        if any(is_within(path, root) for root in roots):
            for function, node in _functions(path, tree):
                found.setdefault(path, []).append(function)
                body_of[function] = _body(node)

    def order(text: str) -> str:
        return hashlib.sha256(f"{seed}\0{text}".encode()).hexdigest()

    modules = [
        sorted(
            (function for function in found[path] if bodies[body_of[function]] == 1),
            key=lambda function: order(f"{function.path}:{function.name}"),
        )
        for path in sorted(found, key=order)
    ]
    turns = itertools.zip_longest(*modules)
    return [function for turn in turns for function in turn if function is not None]


def _functions(path: str, tree: ast.Module) -> Iterator[tuple[SourceFunction, ast.FunctionDef]]:
    owners: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    owners += [(f"{node.name}.", node) for node in tree.body if isinstance(node, ast.ClassDef)]
    for prefix, owner in owners:
        names = Counter(node.name for node in owner.body if isinstance(node, ast.FunctionDef))
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef) or names[node.name] > 1:
                continue
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            size = sum(1 for statement in body for _ in ast.walk(statement))
            own_lines = node.body[0].lineno > node.lineno and node.col_offset == (
                _INDENTATION if prefix else 0
            )
            if size < _FEWEST_NODES or not own_lines:
                continue
            has_text = len(body) < len(node.body)
            docstring = (node.body[0].lineno - 1, (node.body[0].end_lineno or 0) - 1) if has_text else None
            lines = (node.lineno - 1, (node.end_lineno or 0) - 1, body[0].lineno - 1)
            yield SourceFunction(path, prefix + node.name, *lines, docstring, bool(prefix)), node


def _body(node: ast.FunctionDef) -> str:
    """Return the code of a function without its name and its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return ast.dump(ast.Module([*body], [])) + ast.dump(node.args)


def changed_versions(source: str, function: SourceFunction, seed: str) -> Iterator[ChangedFunction]:
    """Yield the versions of a function's file: without its body, and with one mistake each.

    The seed draws which kind comes first, and the mistakes. A function without a docstring keeps its body,
    because nothing would say what it should do.
    """
    removed = [without_body(source, function)] if function.docstring is not None else []
    mistakes = _with_mistakes(source, function, seed)
    first = int(hashlib.sha256(f"{seed}\0{function.name}".encode()).hexdigest(), 16) % 2
    yield from itertools.chain(removed, mistakes) if first else itertools.chain(mistakes, removed)


def source_lines(source: str) -> list[str]:
    """Return the lines as Python counts them, with their ends. A form feed ends none."""
    return _LINE.findall(source)


def without_body(source: str, function: SourceFunction) -> ChangedFunction:
    """Return the file of a function in which nothing but the docstring is left of its body."""
    lines = source_lines(source)
    code = lines[function.body]
    indentation = code[: len(code) - len(code.lstrip())]
    new = [*lines[: function.body], f"{indentation}raise NotImplementedError\n", *lines[function.last + 1 :]]
    return ChangedFunction("".join(new), REMOVED, "")


def _with_mistakes(source: str, function: SourceFunction, seed: str) -> Iterator[ChangedFunction]:
    lines = source_lines(source)
    head = ["class _:\n"] if function.is_method else []
    alone = "".join([*head, *lines[function.first : function.last + 1]])
    text_end = function.docstring[1] + 1 if function.docstring is not None else None
    for operators in (None, subtle_operators):
        for mutant in mutants(alone, _MUTANTS, f"{seed}\0{function.name}", operators):
            changed = source_lines(mutant.source)[len(head) :]
            if text_end is not None:  # `ast.unparse` writes docstrings in another form
                [node] = parse(mutant.source).body
                inner = node.body[0] if isinstance(node, ast.ClassDef) else node
                assert isinstance(inner, ast.FunctionDef)
                end = (inner.body[0].end_lineno or 0) - len(head)
                changed = [*lines[function.first : text_end], *changed[end:]]
            new = "".join([*lines[: function.first], *changed, *lines[function.last + 1 :]])
            if new != source and parsed(new) is not None:
                yield ChangedFunction(new, MUTATED, mutant.kind)
