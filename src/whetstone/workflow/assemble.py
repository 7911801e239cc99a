"""The program that is judged when a problem's starter is the beginning of it.

HumanEval's prompts hold imports and helper functions that replies often leave out, and base models continue
the prompt instead of repeating it; LeetCode's replies use classes and imports that the site defines. Problems
that are to be completed this way carry ``meta["completes_starter"]``; for all others the extracted code is
the program.
"""

from __future__ import annotations

import ast
import re
import textwrap

from whetstone.judge.extract import names_called
from whetstone.problem import COMPLETES_STARTER, AssertTests, Problem
from whetstone.syntax import parsed, parsing

_FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[^\n]*\n?", re.MULTILINE)


def assemble(problem: Problem, code: str) -> str:
    """The program to judge for the ``code`` extracted from a reply.

    Code that defines what the tests call gets what stands before it in the starter (imports, helpers),
    which its own definitions override. Other code is taken for the function's body, and is cut
    where it stops being one: at the first line that leaves the function. Empty code stays empty.
    """
    starter = problem.starter
    if not (problem.meta.get(COMPLETES_STARTER) and starter and code.strip()):
        return code
    names = names_called(problem)
    if not isinstance(problem.tests, AssertTests) or not names:
        return code
    definition = re.compile(rf"^(async\s+def|def|class)\s+({'|'.join(names)})\b", re.MULTILINE)
    if _defines(code, names, definition):
        return _with_prelude(starter, definition, code)
    return _with_body(starter, code)


def _defines(code: str, names: frozenset[str], definition: re.Pattern[str]) -> bool:
    """Whether the code binds one of ``names`` at top level; by its text when it does not parse."""
    tree = parsed(code)
    if tree is None:
        return definition.search(code) is not None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in names:
            return True
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id in names for target in node.targets
        ):
            return True
    return False


def _with_prelude(starter: str, definition: re.Pattern[str], code: str) -> str:
    # A starter may hold nothing but what a program finds defined: imports, and classes of nodes.
    found = definition.search(starter)
    prelude = (starter[: found.start()] if found else starter).strip("\n")
    if not prelude.strip():
        return code
    # Only a program's first statement may be a __future__ import.
    futures = "".join(line.rstrip("\n") + "\n" for line in (m[0] for m in _FUTURE.finditer(code)))
    return f"{futures}{prelude}\n\n{_FUTURE.sub('', code) if futures else code}"


def _with_body(starter: str, code: str) -> str:
    """The starter and the first reading of ``code`` as a body that is a program; else the plain joint."""
    head = starter if starter.endswith("\n") else starter + "\n"
    first, _, rest = code.lstrip("\n").partition("\n")
    readings = [code.lstrip("\n")]
    if not first.startswith((" ", "\t")):
        readings = [f"    {first}\n{rest}", textwrap.indent(textwrap.dedent(code), "    ")]
    # Whole readings first: cutting one of them short must not win over another that keeps all.
    for body in (*readings, *map(_indented_part, readings)):
        if body.strip() and _compiles(head + body):
            return head + body
    return head + code


def _indented_part(body: str) -> str:
    kept: list[str] = []
    for line in body.splitlines(keepends=True):
        if line.strip() and not line.startswith((" ", "\t")):
            break
        kept.append(line)
    return "".join(kept)


def _compiles(code: str) -> bool:
    # Beyond parsing: `return` outside a function, which a body with lost indentation becomes.
    try:
        with parsing():
            compile(code, "program", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True
