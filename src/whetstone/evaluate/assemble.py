"""The program that is judged when a benchmark's prompt is itself the beginning of a program.

HumanEval's prompts hold imports and helper functions that replies often leave out, and base models
continue the prompt instead of repeating it. Problems that are to be completed this way carry
``meta["completes_starter"]``; for all others the extracted code is the program.
"""

from __future__ import annotations

import ast
import re
import textwrap

from whetstone.data.sources.humaneval import COMPLETES_STARTER
from whetstone.problem import AssertTests, Problem, Program
from whetstone.syntax import parsed, parsing
from whetstone.verdict import Judgement
from whetstone.workflow.single_turn import ProgramJudge

_FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[^\n]*\n?", re.MULTILINE)


class AssemblingJudge:
    """A judge that completes programs by :func:`assemble` first. A reply without code stays without."""

    def __init__(self, judge: ProgramJudge) -> None:
        self._judge = judge

    async def judge(self, problem: Problem, program: Program) -> Judgement:
        """The verdict on the assembled program."""
        return await self._judge.judge(problem, Program(program.language, assemble(problem, program.source)))


def assemble(problem: Problem, code: str) -> str:
    """The program to judge for the ``code`` extracted from a reply.

    Code that defines the entry point gets what stands before it in the starter (imports, helpers),
    which its own definitions override. Other code is taken for the function's body, and is cut
    where it stops being one: at the first line that leaves the function. Empty code stays empty.
    """
    tests = problem.tests
    starter = problem.starter
    if not (problem.meta.get(COMPLETES_STARTER) and starter and code.strip()):
        return code
    if not isinstance(tests, AssertTests) or tests.entry_point is None:
        return code
    if _defines(code, tests.entry_point):
        return _with_prelude(starter, tests.entry_point, code)
    return _with_body(starter, code)


def _defines(code: str, name: str) -> bool:
    """Whether the code binds ``name`` at top level; by its text when it does not parse."""
    tree = parsed(code)
    if tree is None:
        return re.search(rf"^(async\s+def|def|class)\s+{name}\b", code, re.MULTILINE) is not None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.Assign):
            targets = [t.id for t in node.targets if isinstance(t, ast.Name)]
            if name in targets:
                return True
    return False


def _with_prelude(starter: str, entry_point: str, code: str) -> str:
    found = re.search(rf"^(async\s+def|def|class)\s+{entry_point}\b", starter, re.MULTILINE)
    prelude = starter[: found.start()].strip("\n") if found else ""
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
