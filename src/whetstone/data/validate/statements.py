"""Defects that the statement of a problem shows: images, interaction, and freedom that the comparison lacks.

These are heuristics on English text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from whetstone.core.problem import GRADER_PREFIX, CallTests, Compare, InteractiveTests, Problem, StdinTests
from whetstone.data.validate.comparing import Tolerance, freedom_of, with_stated_comparison
from whetstone.data.validate.reasons import DefectFlag

# Letters and digits of the shortest statement, and of the shortest one that also has an image. "Add a and b"
# is a statement. A caption such as "see the picture above" is none.
_FEWEST_LETTERS = 5
_FEWEST_LETTERS_WITH_IMAGE = 80
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
_YES_OR_NO = frozenset({"yes", "no", "true", "false", "possible", "impossible", "y", "n"})


def statement_flags(problem: Problem) -> Iterator[DefectFlag]:
    """Yield the defects that the statement shows."""
    text = problem.statement
    letters = _letters(text)
    images = _IMAGE.findall(text)
    # An image may be the whole statement, which has a flag of its own.
    if letters < _FEWEST_LETTERS and not images:
        yield DefectFlag("missing_statement", f"{letters} letters and digits")
        return
    if images and _letters(_IMAGE.sub(" ", text)) < _FEWEST_LETTERS_WITH_IMAGE:
        yield DefectFlag(
            "image_only_statement", f"there is hardly any text in addition to {_shown(images[0])}"
        )
    elif images:
        yield DefectFlag("image_in_statement", _shown(images[0]))
    elif mentioned := _IMAGE_MENTIONED.search(text):
        yield DefectFlag("image_in_statement", _shown(mentioned[0]))
    conversation = None if isinstance(problem.tests, InteractiveTests) else _CONVERSATION.search(text)
    if conversation and not _NO_CONVERSATION.search(text):
        yield DefectFlag("interactive_statement", _shown(conversation[0]))
    yield from _freedom_flags(problem)


def _freedom_flags(problem: Problem) -> Iterator[DefectFlag]:
    """Yield the freedom that the statement gives and the comparison does not."""
    if problem.checker is not None or isinstance(problem.tests, InteractiveTests):
        return
    mode = problem.compare.mode
    any_order = mode == "unordered_lines" or problem.compare.order in ("any", "all")
    freedom = freedom_of(problem.statement, ordered=not any_order)
    if freedom.several and not _only_decides(problem):
        yield DefectFlag("several_answers", _shown(freedom.several))
    if not isinstance(problem.tests, StdinTests):
        return
    free = mode in ("ignore_case", "grader:scalebox")
    free |= mode == "kattis" and not problem.compare.case_sensitive
    if not free and freedom.any_case:
        yield DefectFlag("any_case", _shown(freedom.any_case))
    tolerance = freedom.tolerance
    if tolerance is not None and _stricter(problem.compare, tolerance):
        yield DefectFlag("float_tolerance", _shown(tolerance.words))


def leaves_open(problem: Problem) -> bool:
    """Return whether the statement allows what no comparison can decide, and the problem has no checker."""
    return any(True for _ in _freedom_flags(with_stated_comparison(problem)[0]))


def _only_decides(problem: Problem) -> bool:
    """Return whether every expected answer is yes or no: then only one of the two is right."""
    tests = problem.tests
    if isinstance(tests, StdinTests):
        words = {word.casefold() for case in tests.cases for word in case.output.split()}
        return bool(words) and words <= _YES_OR_NO
    if isinstance(tests, CallTests) and tests.function is not None:
        return all(isinstance(c.expected, bool) or c.expected in ("True", "False") for c in tests.cases)
    return False


def _stricter(compare: Compare, tolerance: Tolerance) -> bool:
    """Return whether the comparison allows less than the tolerance."""
    if compare.mode.startswith(GRADER_PREFIX):
        return False
    # These modes compare text, so they allow no numeric error.
    if compare.mode in ("exact", "lines", "unordered_lines"):
        return True
    usual = 0.0 if compare.mode == "kattis" else 1e-6
    allowed = [usual if bound is None else bound for bound in (compare.abs, compare.rel)]
    if compare.mode in ("tokens", "ignore_case"):
        allowed = [1e-6, 1e-6]
    return (tolerance.abs or 0.0) > allowed[0] or (tolerance.rel or 0.0) > allowed[1]


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)


def _shown(text: str) -> str:
    return f'"{" ".join(text.split())[:80]}"'
