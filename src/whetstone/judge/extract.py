"""Extract the program from a model's reply.

By default, evidence decides. Candidates are the blocks in the requested language and those without a
language. A candidate is better the more it has of what the tests need: the names that they call, or code that
reads the input. Blocks that cannot be the program come last: output, an example of its use, its tests.

Between equal candidates, complete blocks win over those that were cut off. Then tagged blocks win over
untagged ones, and later ones over earlier ones. If the chosen block uses names that another block defines,
that block is added, because models write programs in pieces.

If the reply was started for the model (with an opening fence), pass the start and the reply together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from whetstone.core.problem import AssertTests, CallTests, Problem
from whetstone.core.syntax import NotPython, parsed
from whetstone.judge.fences import FencedBlock, blocks, clean, without_blocks
from whetstone.judge.kinds.names import test_names
from whetstone.judge.languages.language import Language
from whetstone.judge.languages.table import LANGUAGES, PYTHON, is_python, language_named
from whetstone.judge.program_evidence import PythonEvidence, dedent, does_something, regions

ExtractionRule = Literal["program", "last_fence", "first_fence", "all_fences", "whole"]

_THINK = re.compile(r"</?think>")
_UNUSUAL_INDENT = re.compile(r"^[ \t\xa0\u3000]+", re.MULTILINE)


def _tags(language: Language) -> frozenset[str]:
    """Return the tags of blocks in a language: its names, or no tag."""
    return frozenset({"", language.name, *language.aliases, *language.fences})


_PYTHON_TAGS = _tags(LANGUAGES[PYTHON])


def extract_program(
    text: str, rule: ExtractionRule = "program", language: str = PYTHON, names: Iterable[str] = ()
) -> str | None:
    """Return the program in ``text``, or None if there is none. A blank program counts as none.

    rule: how to choose.

    - ``program``: by evidence; see the module docstring. ``names`` are those that the tests call; see
      ``names_called``. If no fenced block is in the language, it is the part of the text that is a program.
    - ``last_fence``, ``first_fence``: the last or first complete block that is tagged with ``language`` (or
      an alias) or has no tag. If no such block is complete, the unterminated one at the end.
    - ``all_fences``: all complete blocks joined; if there is none, the unterminated one.
    - ``whole``: the whole text.

    If there is no fence, the three rules of fences return the whole text if it is a Python program, and
    Python is requested.
    """
    if rule == "whole":
        return text if text.strip() else None
    known = None if is_python(language) else language_named(language, "the program")
    tags = _PYTHON_TAGS if known is None else _tags(known)
    text = clean(text)
    if rule == "program":
        return _python_program(text, frozenset(names)) if known is None else _other_program(text, tags, known)
    found = blocks(text, tags, python=known is None)
    if not found:
        return text if known is None and _is_program(text) else None
    matching = [b for b in found if b.tag in tags and b.code.strip()]
    chosen = [b for b in matching if b.complete] or matching
    if not chosen:
        return None
    if rule == "all_fences":
        return "\n".join(block.code for block in chosen)
    return chosen[0 if rule == "first_fence" else -1].code


def names_called(problem: Problem) -> frozenset[str]:
    """Return the names that a problem's tests use from a Python program; empty if the program reads text."""
    tests = problem.tests
    if isinstance(tests, CallTests):
        return frozenset({tests.class_ or tests.function or ""} - {""})
    if not isinstance(tests, AssertTests):
        return frozenset()
    if tests.entry_point:
        return frozenset({tests.entry_point})
    code = "\n".join((tests.setup, tests.unittest or "", *(tests.asserts or ())))
    references = tuple(r.source for r in problem.references if is_python(r.language))
    shown = (problem.statement, problem.starter or "")
    try:
        return frozenset(test_names(code, None, references, shown, frozenset()).program)
    except NotPython:
        return frozenset()


def strip_thinking(text: str) -> str | None:
    """Return the text after the last ``</think>``. None if the thinking does not end; without tags the whole
    text.

    A tag inside a line of a closed block is part of the program, and does not begin or end the thinking.
    """
    last: re.Match[str] | None = None
    last_fence = text.rfind("\n```")
    at, fences, is_within_line = 0, int(text.startswith("```")), False
    for tag in _THINK.finditer(text):
        # Only the text after the previous tag is searched, so that many tags cost no more than the text.
        fences += text.count("\n```", at, tag.start())
        line = max(text.rfind("\n", at, tag.start()) + 1, at)
        is_within_line = (is_within_line and line == at) or bool(text[line : tag.start()].strip())
        in_code = is_within_line and fences % 2 == 1 and last_fence >= tag.end()
        if not in_code:
            last, fences = tag, int(text.startswith("```", tag.end()))
        at, is_within_line = tag.end(), True
    if last is None:
        return text
    return text[last.end() :] if last[0] == "</think>" else None


def answer_part(text: str) -> str | None:
    """Return the content of the last complete ``<answer>…</answer>`` after the thinking, or None."""
    visible = strip_thinking(text)
    if visible is None:
        return None
    answer: str | None = None
    at = 0
    while (begin := visible.find("<answer>", at)) >= 0:
        end = visible.find("</answer>", begin)
        if end < 0:
            break
        answer, at = visible[begin + len("<answer>") : end], end + len("</answer>")
    return answer


def _python_program(text: str, names: frozenset[str]) -> str | None:
    if _is_program(text):
        return text  # even if its strings contain fences
    found = blocks(text, _PYTHON_TAGS, python=True)
    candidates = [
        (b, _read_with_best_indent(b.code, names)) for b in found if b.tag in _PYTHON_TAGS and b.code.strip()
    ]
    if not any(evidence.fitness for _, evidence in candidates):
        # The program may be outside the blocks, which then contain its output or a command to start it.
        outside = [FencedBlock("", code, True) for code in regions(without_blocks(text))]
        candidates += [(block, PythonEvidence(block.code, names)) for block in outside]
    if not candidates:
        return None
    numbered = list(enumerate(candidates))
    best = max(numbered, key=lambda entry: _rank(entry[0], *entry[1]))[0]
    return _join_pieces(best, [evidence for _, evidence in candidates], names)


def _rank(number: int, block: FencedBlock, evidence: PythonEvidence) -> tuple[int, ...]:
    return evidence.fitness, not evidence.is_test, block.complete, block.tag != "", number


def _read_with_best_indent(code: str, names: frozenset[str]) -> PythonEvidence:
    """Return the evidence of a text.

    The indentation is repaired if only that makes it the requested program.
    """
    plain = PythonEvidence(code, names)
    if plain.tree is not None:
        return plain
    spaces = _UNUSUAL_INDENT.sub(lambda m: m[0].replace("\xa0", " ").replace("\u3000", "    "), code)
    for other in (spaces, dedent(spaces)):
        if other != code:
            evidence = PythonEvidence(other, names)
            if evidence.tree is not None and evidence.fitness > plain.fitness:
                return evidence
    return plain


def _join_pieces(best: int, candidates: Sequence[PythonEvidence], names: frozenset[str]) -> str:
    """Return the best candidate, joined with those that define the names that it lacks."""
    chosen = {best}
    wanted = candidates[best].missing | (names - candidates[best].defined)
    if candidates[best].tree is None:
        return candidates[best].code
    if not names and candidates[best].fitness and not candidates[best].writes:
        # The block only reads input. Blocks that print continue it with its names.
        rest = candidates[best + 1 :]
        chosen |= {
            n for n, c in enumerate(rest, best + 1) if c.writes and c.missing & candidates[best].defined
        }
    while True:
        lacking = wanted - frozenset[str]().union(*(candidates[number].defined for number in chosen))
        # Prefer the nearest block before it, then the next one after it.
        order = [*range(best - 1, -1, -1), *range(best + 1, len(candidates))]
        next_piece = next(
            (n for n in order if n not in chosen and _defines_missing(candidates[n], lacking)), None
        )
        if next_piece is None:
            break
        chosen.add(next_piece)
        wanted |= candidates[next_piece].missing
    return "\n".join(candidates[number].code for number in sorted(chosen))


def _defines_missing(piece: PythonEvidence, lacking: frozenset[str]) -> bool:
    return piece.tree is not None and not piece.is_test and bool(piece.defined & lacking)


def _other_program(text: str, tags: frozenset[str], language: Language) -> str | None:
    """Return the program in a language that is not parsed here. Patterns of the language recognise it."""
    whole_program = re.compile(language.program_pattern, re.MULTILINE)
    found = [b for b in blocks(text, tags, python=False) if b.tag in tags and b.code.strip()]
    if not found:
        return _unfenced_program(text, language) if whole_program.search(text) else None
    numbered = list(enumerate(found))
    best = max(
        numbered,
        key=lambda e: (whole_program.search(e[1].code) is not None, e[1].complete, e[1].tag != "", e[0]),
    )[0]
    first_line = re.compile(language.first_line_pattern, re.MULTILINE)
    if whole_program.search(found[best].code) and not first_line.search(found[best].code):
        # The beginning of the program is in a block of its own.
        pieces = [b.code for b in found[:best] if b.complete and b.tag and first_line.search(b.code)]
        if pieces and not whole_program.search(pieces[-1]):
            return f"{pieces[-1]}\n{found[best].code}"
    return found[best].code


def _unfenced_program(text: str, language: Language) -> str | None:
    """Return the text from its first line of code to its last."""
    lines = text.split("\n")
    first_line = re.compile(language.first_line_pattern)
    first = next((number for number, line in enumerate(lines) if first_line.match(line)), None)
    if first is None:
        return None
    last = max((n for n, line in enumerate(lines) if line.rstrip().endswith(("}", ";", "})"))), default=-1)
    return "\n".join(lines[first : last + 1]) + "\n" if last >= first else "\n".join(lines[first:])


def _is_program(text: str) -> bool:
    tree = parsed(text)
    return tree is not None and does_something(tree)
