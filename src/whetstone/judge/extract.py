"""The program inside a model's reply.

By default it is chosen by evidence. A block of the asked language, or one that names no language, is the
better candidate the more it has of what the tests need: the names that they call, or a program that reads its
input. What a program cannot be comes last: output, a usage of it, its tests. Among equals a complete block
wins over one that was cut, a tagged one over an untagged one, and the last over those before. Names that the
chosen block uses and another one defines bring that one along: programs come in pieces.

Where a reply was started for the model (with an opening fence), pass start and reply together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from whetstone.judge.fences import Block, blocks, clean, without_blocks
from whetstone.judge.kinds.names import test_names
from whetstone.judge.languages.language import Language
from whetstone.judge.languages.table import LANGUAGES, PYTHON, PYTHON_SCIENTIFIC, language_named
from whetstone.judge.program_evidence import PythonEvidence, dedented, does_something, regions
from whetstone.problem import AssertTests, CallTests, Problem
from whetstone.syntax import NotPython, parsed

ExtractionRule = Literal["program", "last_fence", "first_fence", "all_fences", "whole"]

_THINK = re.compile(r"</?think>")
_MOST_BLOCKS = 50
"""So many blocks are looked at from the beginning of a reply, and as many from its end."""
_INDENT_OF_OTHERS = re.compile(r"^[ \t\xa0\u3000]+", re.MULTILINE)


def _tags(language: Language) -> frozenset[str]:
    """What the fence of a block of the language says: one of its names, or nothing."""
    return frozenset({"", language.name, *language.aliases, *language.fences})


_PYTHON_TAGS = _tags(LANGUAGES[PYTHON])


def extract_program(
    text: str, rule: ExtractionRule = "program", language: str = PYTHON, names: Iterable[str] = ()
) -> str | None:
    """Return the program in ``text``, or None when there is none.

    ``program`` chooses by evidence (see the module's text); ``names`` are those that the tests call, see
    ``names_called``. Without any fence, and where no fenced block is in the language, it is the part of the
    text that is a program. ``last_fence`` and ``first_fence`` take the last or first complete block tagged
    with ``language`` (python, py, or one of its aliases) or nothing; if no such block is complete, the
    unterminated one at the end. ``all_fences`` joins the complete ones (and none: the unterminated one).
    Without any fence, these take the whole text if it parses as Python that does something, and is asked for
    in Python. ``whole`` takes the text as it is. Blank code is none.
    """
    if rule == "whole":
        return text if text.strip() else None
    known = None if language in (PYTHON, PYTHON_SCIENTIFIC) else language_named(language, "the program")
    tags = _PYTHON_TAGS if known is None else _tags(known)
    text = clean(text)
    if rule == "program":
        return _python_program(text, frozenset(names)) if known is None else _other_program(text, tags, known)
    found = blocks(text, tags, python=known is None)
    if not found:
        return text if known is None and _is_program(text) else None
    ours = [b for b in found if b.tag in tags and b.code.strip()]
    chosen = [b for b in ours if b.complete] or ours
    if not chosen:
        return None
    if rule == "all_fences":
        return "\n".join(block.code for block in chosen)
    return chosen[0 if rule == "first_fence" else -1].code


def names_called(problem: Problem) -> frozenset[str]:
    """The names that a problem's tests ask of a Python program; none where they give it text to read."""
    tests = problem.tests
    if isinstance(tests, CallTests):
        return frozenset({tests.class_ or tests.function or ""} - {""})
    if not isinstance(tests, AssertTests):
        return frozenset()
    if tests.entry_point:
        return frozenset({tests.entry_point})
    code = "\n".join((tests.setup, tests.unittest or "", *(tests.asserts or ())))
    references = tuple(r.source for r in problem.references if r.language in (PYTHON, PYTHON_SCIENTIFIC))
    shown = (problem.statement, problem.starter or "")
    try:
        return frozenset(test_names(code, None, references, shown, frozenset()).program)
    except NotPython:
        return frozenset()


def strip_thinking(text: str) -> str | None:
    """The text after the last ``</think>``; None when the thinking never ends. Without any, the text.

    What stands inside a line of a closed block is the program's text, and ends or begins no thinking.
    """
    last: re.Match[str] | None = None
    last_fence = text.rfind("\n```")
    at, fences, within_line = 0, int(text.startswith("```")), False
    for tag in _THINK.finditer(text):
        # Only what follows the tag before is looked at, so that many tags cost no more than the text.
        fences += text.count("\n```", at, tag.start())
        line = max(text.rfind("\n", at, tag.start()) + 1, at)
        within_line = (within_line and line == at) or bool(text[line : tag.start()].strip())
        in_code = within_line and fences % 2 == 1 and last_fence >= tag.end()
        if not in_code:
            last, fences = tag, int(text.startswith("```", tag.end()))
        at, within_line = tag.end(), True
    if last is None:
        return text
    return text[last.end() :] if last[0] == "</think>" else None


def answer_part(text: str) -> str | None:
    """The content of the last complete ``<answer>…</answer>`` after the thinking, or None."""
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
        return text  # whatever fences it holds in its strings
    found = blocks(text, _PYTHON_TAGS, python=True)
    candidates = [
        (b, _best_reading(b.code, names)) for b in found if b.tag in _PYTHON_TAGS and b.code.strip()
    ]
    if not any(evidence.serves for _, evidence in candidates):
        # Perhaps the program stands beside the blocks, which hold its output or how to start it.
        around = [Block("", code, True) for code in regions(without_blocks(text))]
        candidates += [(block, PythonEvidence(block.code, names)) for block in around]
    if not candidates:
        return None
    numbered = list(enumerate(candidates))
    best = max(numbered, key=lambda entry: _rank(entry[0], *entry[1]))[0]
    return _with_pieces(best, [evidence for _, evidence in candidates], names)


def _rank(number: int, block: Block, evidence: PythonEvidence) -> tuple[int, ...]:
    return evidence.serves, not evidence.is_test, block.complete, block.tag != "", number


def _best_reading(code: str, names: frozenset[str]) -> PythonEvidence:
    """The text as it is, or with its indentation mended where only that makes it what was asked for."""
    plain = PythonEvidence(code, names)
    if plain.tree is not None:
        return plain
    spaces = _INDENT_OF_OTHERS.sub(lambda m: m[0].replace("\xa0", " ").replace("\u3000", "    "), code)
    for other in (spaces, dedented(spaces)):
        if other != code:
            evidence = PythonEvidence(other, names)
            if evidence.tree is not None and evidence.serves > plain.serves:
                return evidence
    return plain


def _with_pieces(best: int, candidates: Sequence[PythonEvidence], names: frozenset[str]) -> str:
    """The best candidate, joined with those that define what it lacks."""
    chosen = {best}
    wanted = candidates[best].missing | (names - candidates[best].defined)
    if candidates[best].tree is None:
        return candidates[best].code
    if not names and candidates[best].serves and not candidates[best].writes:
        # It only reads: what prints goes on with its names.
        rest = candidates[best + 1 :]
        chosen |= {
            n for n, c in enumerate(rest, best + 1) if c.writes and c.missing & candidates[best].defined
        }
    while True:
        lacking = wanted - frozenset[str]().union(*(candidates[number].defined for number in chosen))
        # The nearest one before it, else the next one after it.
        order = [*range(best - 1, -1, -1), *range(best + 1, len(candidates))]
        more = next((n for n in order if n not in chosen and _gives(candidates[n], lacking)), None)
        if more is None:
            break
        chosen.add(more)
        wanted |= candidates[more].missing
    return "\n".join(candidates[number].code for number in sorted(chosen))


def _gives(piece: PythonEvidence, lacking: frozenset[str]) -> bool:
    return piece.tree is not None and not piece.is_test and bool(piece.defined & lacking)


def _other_program(text: str, tags: frozenset[str], language: Language) -> str | None:
    """The program in a language that is not parsed here: known by the words that its programs have."""
    whole = re.compile(language.whole, re.MULTILINE)
    found = [b for b in blocks(text, tags, python=False) if b.tag in tags and b.code.strip()]
    if not found:
        return _unfenced(text, language) if whole.search(text) else None
    numbered = list(enumerate(found))
    best = max(
        numbered, key=lambda e: (whole.search(e[1].code) is not None, e[1].complete, e[1].tag != "", e[0])
    )[0]
    begins = re.compile(language.begins, re.MULTILINE)
    if whole.search(found[best].code) and not begins.search(found[best].code):
        # Its head stands in a block of its own.
        pieces = [b.code for b in found[:best] if b.complete and b.tag and begins.search(b.code)]
        if pieces and not whole.search(pieces[-1]):
            return f"{pieces[-1]}\n{found[best].code}"
    return found[best].code


def _unfenced(text: str, language: Language) -> str | None:
    """The text from its first line of code to its last."""
    lines = text.split("\n")
    begins = re.compile(language.begins)
    first = next((number for number, line in enumerate(lines) if begins.match(line)), None)
    if first is None:
        return None
    last = max((n for n, line in enumerate(lines) if line.rstrip().endswith(("}", ";", "})"))), default=-1)
    return "\n".join(lines[first : last + 1]) + "\n" if last >= first else "\n".join(lines[first:])


def _is_program(text: str) -> bool:
    tree = parsed(text)
    return tree is not None and does_something(tree)
