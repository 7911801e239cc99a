"""What a statement says about its problem: words that tell of images, conversations and several answers.

These are heuristics on English text. They name what a person should look at; most of them only mark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import Flag
from whetstone.problem import InteractiveTests, Problem, StdinTests

_IMAGE = re.compile(
    r"!\[[^\]]*\](?:\([^)]*\))?|<img\b[^>]*>|<image>|\[image\]|\\includegraphics(?:\[[^\]]*\])?\{[^}]*\}"
    r"|https?://\S+\.(?:png|jpe?g|gif|svg|webp)\b",
    re.IGNORECASE,
)
_IMAGE_MENTIONED = re.compile(
    r"\b(?:see|shown|given|depicted|illustrated|described|look at|in|on|refer to)\s+(?:in\s+|by\s+|on\s+)?"
    r"(?:the|this)\s+(?:(?:following|figure's|above|below|attached)\s+)?(?:figure|picture|image|diagram|illustration)\b",
    re.IGNORECASE,
)
_CONVERSATION = re.compile(
    r"\binteractive\s+(?:problem|task|protocol)\b|\bthe\s+interactor\b|\binteraction\s+protocol\b"
    r"|\bflush(?:ing)?\s+(?:the\s+|your\s+)?(?:output|stdout|standard\s+output|stream|buffer)\b",
    re.IGNORECASE,
)
_NO_CONVERSATION = re.compile(r"\b(?:not|non|isn't|no)[\s-]+(?:an\s+)?interactive\b", re.IGNORECASE)
_THINGS = r"(?:answer|solution|output|way|option|sequence|array|string|permutation|path|choice)s?"
_ANY_ANSWER = re.compile(
    r"\bany\s+(?:one\s+)?of\s+(?:them|these|those)\b"
    r"|\b(?:print|output|return|report)\s+any(?:\s+(?:one|such|valid|correct|possible|suitable))*\b"
    rf"|\bany\s+(?:valid|correct|possible|optimal|suitable|acceptable|such)\s+{_THINGS}\b"
    r"|\bany\s+(?:answer|solution)\b"
    r"|\b(?:print|output|return|answers?|results?)\b[^.]{0,60}\bin\s+(?:any|arbitrary)\s+order\b"
    rf"|\b(?:multiple|several|all)\s+(?:correct\s+|valid\s+)?{_THINGS}\s+(?:are|will\s+be)\s+(?:accepted|allowed)\b",
    re.IGNORECASE,
)
_MORE_THAN_ONE = re.compile(
    rf"\b(?:if|when|where)\s+(?:there\s+(?:are|is|exist)|several|multiple|many)\s*"
    rf"(?:multiple|several|many|more\s+than\s+one|various|different)?\s*"
    rf"(?:such\s+|possible\s+|valid\s+|correct\s+|optimal\s+|suitable\s+)*{_THINGS}\b",
    re.IGNORECASE,
)
_SAYS_MANY = re.compile(r"\b(?:multiple|several|many|more\s+than\s+one|various|different)\b", re.IGNORECASE)
_TIE_BREAK = re.compile(
    r"\b(?:lexicographically|smallest|largest|minimum|maximum|minimal|maximal|first|last|earliest|latest|least"
    r"|greatest|lowest|highest|shortest|longest|leftmost|rightmost|number\s+of|how\s+many|count|all\s+of\s+them)\b",
    re.IGNORECASE,
)
_ANY_CASE = re.compile(
    r"\b(?:letters?|characters?|print|output|answer)\b[^.]{0,60}\bin\s+any\s+(?:letter\s+)?(?:case|register)\b"
    r"|\bany\s+case\s+\(|\bcase[\s-]+insensitive\b"
    r"|\b(?:upper|lower)\s*(?:case)?\s+or\s+(?:upper|lower)\s*case\s+(?:is|are)\s+(?:accepted|allowed)\b",
    re.IGNORECASE,
)
_TOLERANCE = re.compile(
    r"\b(?:absolute|relative)\b[^.]{0,60}?\berror\b[^.\n]{0,80}?10\s*(?:\^|\*\*)?\s*\{?\s*[-\u2212\u2013]\s*(\d+)",
    re.IGNORECASE,
)
_COMPARED_WITHIN = {"tokens": 6, "exact": math.inf, "lines": math.inf}
"""The error that these comparisons allow, as the exponent of a tenth."""


def statement_flags(problem: Problem, policy: Policy) -> Iterator[Flag]:
    """The defects that the statement tells of."""
    text = problem.statement
    letters = _letters(text)
    images = _IMAGE.findall(text)
    if letters < policy.shortest_statement and not images:
        yield Flag("missing_statement", f"{letters} letters and digits")
        return
    if images and _letters(_IMAGE.sub(" ", text)) < policy.shortest_beside_image:
        yield Flag("image_only_statement", f"beside {_shown(images[0])} there is hardly any text")
    elif images:
        yield Flag("image_in_statement", _shown(images[0]))
    elif mentioned := _IMAGE_MENTIONED.search(text):
        yield Flag("image_in_statement", _shown(mentioned[0]))
    yield from _conversation(problem)
    yield from _freedom(problem)


def _conversation(problem: Problem) -> Iterator[Flag]:
    if isinstance(problem.tests, InteractiveTests):
        return
    text = problem.statement
    if (found := _CONVERSATION.search(text)) and not _NO_CONVERSATION.search(text):
        yield Flag("interactive_statement", _shown(found[0]))


def _freedom(problem: Problem) -> Iterator[Flag]:
    """What the statement leaves to the program, and the comparison does not."""
    if problem.checker is not None or isinstance(problem.tests, InteractiveTests):
        return
    found = _several(problem.statement, ordered=problem.compare.mode != "unordered_lines")
    if found:
        yield Flag("several_answers", _shown(found))
    if not isinstance(problem.tests, StdinTests):
        return
    mode = problem.compare.mode
    free = mode in ("ignore_case", "grader:scalebox")
    free |= mode == "kattis" and not problem.compare.case_sensitive
    if not free and (found := _ANY_CASE.search(problem.statement)):
        yield Flag("any_case", _shown(found[0]))
    found = _TOLERANCE.search(problem.statement)
    if found and int(found[1][:9]) < _COMPARED_WITHIN.get(mode, 0):
        yield Flag("float_tolerance", f"an error of 10^-{found[1]} is allowed")


def _several(text: str, *, ordered: bool) -> str:
    """The words that allow several answers; empty where a rule says which of them is meant."""
    for sentence in re.split(r"(?<=[.!?;])\s+|\n\s*\n", text):
        for found in _ANY_ANSWER.finditer(sentence):
            if ordered or "order" not in found[0].lower():
                return found[0]
        found = _MORE_THAN_ONE.search(sentence)
        if found and _SAYS_MANY.search(found[0]) and not _TIE_BREAK.search(sentence):
            return found[0]
    return ""


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)


def _shown(text: str) -> str:
    return f'"{" ".join(text.split())[:80]}"'
