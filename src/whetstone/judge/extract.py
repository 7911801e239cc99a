"""Extract the program from a model's reply.

By default, evidence decides. Candidates are the blocks in the requested language and those without a
language. A candidate is better the more it has of what the tests need: the names that they call, or code that
reads the input. Blocks that cannot be the program come last: output, an example of its use, its tests.

Between equal candidates, complete blocks win over those that were cut off. Then tagged blocks win over
untagged ones, these over blocks with the tag of no language (``text``, ``code``), and later ones over earlier
ones. If the chosen block uses names that another block defines, that block is added, because models write
programs in pieces.

If the reply was started for the model (with an opening fence), pass the start and the reply together.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from whetstone.core.problem import AssertTests, CallTests, Problem
from whetstone.core.syntax import NotPython, parsed
from whetstone.judge.fences import FencedBlock, blocks, clean, without_blocks
from whetstone.judge.kinds.assert_names import test_names
from whetstone.judge.languages.language import Language
from whetstone.judge.languages.table import LANGUAGE_TAGS, LANGUAGES, PYTHON, is_python, language_named
from whetstone.judge.program_evidence import PythonEvidence, dedent, does_something, regions
from whetstone.judge.reply_parser import ReplyParser

ExtractionRule = Literal["program", "last_fence", "first_fence", "all_fences", "whole"]

_THINK = re.compile(r"</?think>")
# Tokens that end a reply, as tokenizers write them that keep special tokens: <|im_end|>, </s>, <eos>.
END_TOKEN = re.compile(r"<[|｜][\w▁ .-]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>|<pad>")
_LONGEST_END_TOKEN = 44
# How many blocks are candidates, from the end of a reply.
_MAX_BLOCKS = 500
# What the last line of a program is in languages other than Python: it ends like this, or it is a call.
_CODE_ENDS = ("}", ";")
_CALL = re.compile(r"[\w.$]++\(.*\)$")
# A block without a tag may be in any language.
_NO_TAG = frozenset({""})
_PYTHON_TAGS = LANGUAGES[PYTHON].tags | _NO_TAG
_UNUSUAL_INDENT = re.compile(r"^[ \t\xa0\u3000]+", re.MULTILINE)


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

    Without such a block, the three rules of fences take Python programs in blocks with the tag of no
    language. If there is no fence, they return the whole text if it is a Python program and Python is
    requested.
    """
    if rule == "whole":
        return text if text.strip() else None
    known = None if is_python(language) else language_named(language, "the program")
    tags = _PYTHON_TAGS if known is None else known.tags | _NO_TAG
    text = _without_end_tokens(clean(text))
    parser = ReplyParser(len(text) if known is None else 0)
    if rule == "program":
        return (
            _python_program(text, frozenset(names), parser)
            if known is None
            else _other_program(text, tags, known)
        )
    found = [b for b in blocks(text, tags, parser) if b.code.strip()]
    if not found:
        return text if known is None and _is_program(text) else None
    matching = [b for b in found if b.tag in tags] or [
        b for b in _of_no_language(found) if _is_program(b.code, parser)
    ]
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

    ``<think>`` begins the thinking only at the start of the text or of a line; elsewhere prose mentions it. A
    tag in backquotes, or inside a line of a closed block, does not begin or end the thinking either.
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
        is_opening = tag[0] == "<think>"
        at = tag.end()
        if in_code or _is_quoted(text, tag) or (is_opening and is_within_line):
            is_within_line = True
            continue
        last, fences = tag, int(text.startswith("```", tag.end()))
        # Thinking can begin again right behind the tag.
        is_within_line = is_opening
    if last is None:
        return text
    return text[last.end() :] if last[0] == "</think>" else None


def _is_quoted(text: str, tag: re.Match[str]) -> bool:
    """Return whether a tag stands in backquotes. Fences next to it are no backquotes."""
    before, behind = text[max(0, tag.start() - 3) : tag.start()], text[tag.end() : tag.end() + 3]
    return before.endswith("`") and behind.startswith("`") and before != "```" and behind != "```"


def _without_end_tokens(text: str) -> str:
    """Return the text without the special tokens at its end."""
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        start = text.rfind("<", max(0, end - _LONGEST_END_TOKEN), end)
        if start < 0 or END_TOKEN.fullmatch(text, start, end) is None:
            return text if end == len(text.rstrip()) else text[:end]
        end = start


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


def _of_no_language(found: Iterable[FencedBlock]) -> list[FencedBlock]:
    """Return the blocks whose tag is that of no language. A program may stand in them, too."""
    return [block for block in found if block.tag and block.tag not in LANGUAGE_TAGS]


def _python_program(text: str, names: frozenset[str], parser: ReplyParser) -> str | None:
    if _is_program(text):
        return text  # even if its strings contain fences
    found = [b for b in blocks(text, _PYTHON_TAGS, parser) if b.code.strip()][-_MAX_BLOCKS:]
    candidates = [(b, _read_with_best_indent(b.code, names, parser)) for b in found if b.tag in _PYTHON_TAGS]
    others = [(b, PythonEvidence(b.code, names, parser)) for b in _of_no_language(found)]
    candidates = [*(o for o in others if o[1].fits), *candidates]
    if not any(evidence.fitness for _, evidence in candidates):
        # The program may be outside the blocks, which then contain its output or a command to start it.
        outside = [FencedBlock("", code, True) for code in regions(without_blocks(text), parser)]
        candidates += [(block, PythonEvidence(block.code, names, parser)) for block in outside]
    if not candidates:
        return None
    numbered = list(enumerate(candidates))
    best = max(numbered, key=lambda entry: _rank(entry[0], *entry[1]))[0]
    return _join_pieces(best, [evidence for _, evidence in candidates], names)


def _rank(number: int, block: FencedBlock, evidence: PythonEvidence) -> tuple[int, ...]:
    is_tagged = 2 * (block.tag in _PYTHON_TAGS) + (block.tag != "")
    return evidence.fitness, not evidence.is_test, block.complete, is_tagged, number


def _read_with_best_indent(code: str, names: frozenset[str], parser: ReplyParser) -> PythonEvidence:
    """Return the evidence of a text.

    The indentation is repaired if only that makes it the requested program.
    """
    plain = PythonEvidence(code, names, parser)
    if plain.tree is not None:
        return plain
    spaces = _UNUSUAL_INDENT.sub(lambda m: m[0].replace("\xa0", " ").replace("\u3000", "    "), code)
    for other in (spaces, dedent(spaces)):
        if other != code:
            evidence = PythonEvidence(other, names, parser)
            if evidence.tree is not None and evidence.fitness > plain.fitness:
                return evidence
    return plain


def _join_pieces(best: int, candidates: Sequence[PythonEvidence], names: frozenset[str]) -> str:
    """Return the best candidate, joined with those that define the names that it lacks."""
    if candidates[best].tree is None or len(candidates) == 1:
        return candidates[best].code
    pieces = _Pieces(best, candidates)
    pieces.need(names)
    pieces.add(best)
    if not names and candidates[best].fitness and not candidates[best].writes:
        # The block only reads input. Blocks that print continue it with its names.
        for number, piece in enumerate(candidates[best + 1 :], best + 1):
            if piece.writes and piece.missing & candidates[best].defined:
                pieces.add(number)
    pieces.complete()
    return "\n".join(candidates[number].code for number in sorted(pieces.chosen))


class _Pieces:
    """The blocks of a program that stands in several blocks. Each definition of a name is looked at once."""

    def __init__(self, best: int, candidates: Sequence[PythonEvidence]) -> None:
        self.chosen: set[int] = set()
        self._candidates = candidates
        self._best = best
        self._defined: set[str] = set()
        self._needed: set[str] = set()
        self._definitions: dict[str, list[int]] = {}
        for number, piece in enumerate(candidates):
            if piece.tree is not None and not piece.is_test:
                for name in piece.defined:
                    self._definitions.setdefault(name, []).append(number)
        # Nearness and number of a block, and a needed name that it defines.
        self._offers: list[tuple[int, int, str]] = []

    def add(self, number: int) -> None:
        """Choose a block. The names that it lacks are needed from now on."""
        self.chosen.add(number)
        self._defined |= self._candidates[number].defined
        self.need(self._candidates[number].missing)

    def need(self, names: frozenset[str]) -> None:
        """Note names that the program needs, and the blocks that define them."""
        for name in names - self._needed:
            self._needed.add(name)
            for number in self._definitions.get(name, []):
                # The nearest block before the best one is preferred, then the next one after it.
                is_before = number < self._best
                distance = self._best - number if is_before else len(self._candidates) + number
                heapq.heappush(self._offers, (distance, number, name))

    def complete(self) -> None:
        """Choose blocks that define needed names until there are no more of them."""
        while self._offers:
            _, number, name = heapq.heappop(self._offers)
            if name not in self._defined and number not in self.chosen:
                self.add(number)


def _other_program(text: str, tags: frozenset[str], language: Language) -> str | None:
    """Return the program in a language that is not parsed here. Patterns of the language recognise it."""
    whole_program = re.compile(language.program_pattern, re.MULTILINE)
    written = [b for b in blocks(text, tags, ReplyParser(0)) if b.code.strip()]
    found = [b for b in written if b.tag in tags] or [
        b for b in _of_no_language(written) if whole_program.search(b.code)
    ]
    if not found:
        return _unfenced_program(text, language) if whole_program.search(text) else None
    numbered = list(enumerate(found))
    best = max(
        numbered,
        key=lambda e: (whole_program.search(e[1].code) is not None, e[1].complete, e[1].tag != "", e[0]),
    )[0]
    code = found[best].code if found[best].complete else _without_last_prose(found[best].code)
    if whole_program.search(code) and _first_line(code, language) is None:
        # The beginning of the program is in a block of its own.
        pieces = [
            b.code for b in found[:best] if b.complete and b.tag and _first_line(b.code, language) is not None
        ]
        if pieces and not whole_program.search(pieces[-1]):
            return f"{pieces[-1]}\n{code}"
    return code


def _without_last_prose(code: str) -> str:
    """Return a program whose fence is not closed, without the prose in the paragraphs behind it."""
    lines = code.rstrip().split("\n")
    end = len(lines)
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number].strip()
        if line.endswith(_CODE_ENDS) or _CALL.match(line):
            break
        if not line:
            end = number
    return code if end == len(lines) else "\n".join(lines[:end]) + "\n"


def _unfenced_program(text: str, language: Language) -> str | None:
    """Return the text from its first line of code to its last."""
    lines = text.split("\n")
    first = _first_line(text, language)
    if first is None:
        return None
    last = max((n for n, line in enumerate(lines) if line.rstrip().endswith(("}", ";", "})"))), default=-1)
    return "\n".join(lines[first : last + 1]) + "\n" if last >= first else "\n".join(lines[first:])


def _first_line(code: str, language: Language) -> int | None:
    """Return the number of the first line that can begin a program, from 0; None if there is none."""
    pattern = re.compile(language.first_line_pattern)
    # Line by line: a search would try blanks at each of their positions.
    return next((number for number, line in enumerate(code.split("\n")) if pattern.match(line)), None)


def _is_program(text: str, parser: ReplyParser | None = None) -> bool:
    """Return whether a text is a Python program; without a ``parser``, no budget pays for it."""
    tree = parser.tree(text) if parser else parsed(text)
    return tree is not None and does_something(tree)
