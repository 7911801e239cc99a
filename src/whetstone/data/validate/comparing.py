"""The comparison that a statement requires: any letter case, or an allowed error of numbers.

A comparison is never made stricter. References that
disagree are the stronger evidence (``references``). The patterns here cover only the sentences that
benchmarks/data.md measured as frequent; docs/data.md lists what they miss.

Other defects that a statement shows are images, interaction, and freedom that no comparison can decide. All
of these are heuristics on English text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct

from whetstone.core.problem import GRADER_PREFIX, CallTests, Compare, InteractiveTests, Problem, StdinTests
from whetstone.data.validate.reasons import DefectFlag

_PRINT = r"\b(?<!not )(?<!n't )(?:print|output|return|report|find|construct|provide|build)\b"
_THING = (
    r"(?:answers?|solutions?|outputs?|ways?|options?|sequences?|arrays?|strings?|permutations?|paths?|graphs?"
    r"|trees?|pairs?|sets?|plans?|arrangements?|colou?rings?)"
)
_VALID = r"(?:valid|correct|possible|such|suitable|optimal|shortest)"
_OUTRIGHT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_PRINT}(?:\s+\w+){{0,2}}?\s+any(?:\s+one)?(?:\s+of\s+(?:them|these|those|the)\b|\s+{_VALID}\b|\s+{_THING}\b|\s*(?:[.!,;)]|$))",
        rf"\bany\s+(?:one\s+)?(?:of\s+them\s+)?(?:{_VALID}\s+)?(?:{_THING}\s+)?[^.;,]{{0,60}}?"
        r"\b(?:will\s+be|is|are)\s+(?:accepted|considered\s+correct)\b",
        rf"\bmultiple\s+{_THING}\s+are\s+accepted\b",
        rf"{_PRINT}[^.;,:]{{0,60}},?\s+in\s+(?:any|arbitrary)\s+order\b",
        r"\bspecial\s+(?:judge|checker)\b",
    )
)
_MORE_THAN_ONE = re.compile(
    r"\b(?:multiple|several|many|more\s+than\s+one)\s+(?:\w+\s+){0,2}?(?:answers?|solutions?|outputs?)\b"
    rf"|\b(?:multiple|several|many)\s+(?:\w+\s+){{0,2}}?{_THING},?\s+{_PRINT}\s+(?:one|any)\b"
    r"|\b(?:answers?|solutions?)\s+(?:is|are|may|might|need)\s*not\s+(?:\w+\s+){0,2}unique\b",
    re.IGNORECASE,
)
_TIE_BREAK = re.compile(
    r"\b(?:lexicographic\w*|alphabetic\w*|smallest|largest|minim\w+|maxim\w+|first|last|least|most|lowest"
    r"|highest|shortest|longest|fewest|earliest|number|modulo|all|every|count|total)\b|-1",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r"\b(?:minimum|maximum|number|cost|total|sum|whether|count|how\s+many)\b", re.IGNORECASE
)
_UPPER_LOWER = r"(?:upper|lower)[\s-]*(?:case)?\s*(?:or|and|/)\s*(?:in\s+)?(?:upper|lower)[\s-]*case"
_ANY_CASE = re.compile(
    r"\b(?:letters?|print|output|answer|YES|NO)\b(?:(?!\bnot\b)[^.;]){0,60}\bin\s+(?:any|either)\s+case\b"
    rf"|\b(?:print|output|write)\b[^.;]{{0,60}}\bin\s+{_UPPER_LOWER}"
    r"|\b(?:output|checker|answers?)\b[^.;]{0,40}\bcase[\s-]*insensitive\b"
    r"|\brecogni[sz]ed\s+as\s+(?:a\s+)?(?:positive|negative)\b",
    re.IGNORECASE,
)
_MINUS = r"[-\u2212\u2013]"
_ERROR = re.compile(
    r"\b(?P<kind>(?:absolute|relative)(?:\s+(?:or|and)\s+(?:the\s+)?(?:absolute|relative))?)\s+error\b[^;]{0,60}?"
    rf"(?:(?<!\d)10\s*(?:\^|\*\*|<sup>)?\s*\{{?\s*{_MINUS}\s*(?P<power>\d{{1,2}})"
    rf"|1e{_MINUS}0?(?P<exponent>\d{{1,2}})|(?P<decimal>0\.0*[1-9]\d*))",
    re.IGNORECASE,
)
# LeetCode's sentences. Statements may have the words in bold, and a power without its sign.
_BOLD = re.compile(r"[*_`]{1,2}")
_ORDER_FREE = re.compile(
    r"\b(?:return|answers?|outputs?|results?|solutions?)\b[^.;:]{0,60}?\bin\s+(?:any|arbitrary)\s+order\b"
    r"|\border\s+of\s+(?:the\s+)?(?:outputs?|answers?|results?|elements?\s+in\s+the\s+(?:output|answer))\b"
    r"[^.;:]{0,40}?\b(?:does\s+not|doesn't)\s+matter\b",
    re.IGNORECASE,
)
_WITHIN = re.compile(
    rf"\b(?:answers?|results?|values?)\s+within\s+(?:10\s*\^?\s*\{{?\s*{_MINUS}\s*(?P<power>\d{{1,2}})"
    rf"|1e{_MINUS}0?(?P<exponent>\d{{1,2}})|(?P<decimal>0\.0*[1-9]\d*))\}}?\s+of\s+the\s+(?:actual|correct)\b",
    re.IGNORECASE,
)


class StatedTolerance(Struct, frozen=True):
    """An allowed error of printed numbers, absolute or relative; None: not allowed. ``words`` is the
    quotation."""

    abs: float | None
    rel: float | None
    words: str


class _Freedom(Struct, frozen=True):
    """The sentences of a statement that allow more than one output; empty or None if there are none.

    several: more than one answer is right. any_case: letter case does not matter. any_order: the items of a
    returned list may be in any order.
    """

    several: str = ""
    any_case: str = ""
    any_order: str = ""
    tolerance: StatedTolerance | None = None


def freedom_of(statement: str, *, ordered: bool = True) -> _Freedom:
    """Return the freedom in ``statement``. ``ordered=False``: the comparison ignores the order of lines."""
    sentences = [_BOLD.sub("", text) for text in _sentences(statement)]
    any_order = next((match[0] for text in sentences if (match := _ORDER_FREE.search(text))), "")
    any_case = next((match[0] for text in sentences if (match := _ANY_CASE.search(text))), "")
    tolerance = next((allowed for text in sentences if (allowed := _tolerance(text))), None)
    return _Freedom(_several(sentences, ordered=ordered), any_case, any_order, tolerance)


def _sentences(text: str) -> list[str]:
    """Split into sentences with single spaces. A blank line ends a sentence; a single line break does not."""
    parts = re.split(r"(?<=[.!?;])\s+|\n\s*\n|\n(?=\s*(?:[-*\u2022#]|Input|Output|Example|Note))", text)
    return [joined for part in parts if (joined := " ".join(part.split()))]


def _several(sentences: list[str], *, ordered: bool) -> str:
    for sentence, following in zip(sentences, [*sentences[1:], ""], strict=False):
        for pattern in _OUTRIGHT:
            match = pattern.search(sentence)
            # `any` in a sentence that asks for a number, or about an error, does not allow several answers.
            if match is None or _COUNTED.search(match[0]) or _ERROR.search(sentence):
                continue
            if ordered or not match[0].endswith("order"):
                return match[0]
        match = _MORE_THAN_ONE.search(sentence)
        # The next sentence often says which of several answers to print.
        if match and not _TIE_BREAK.search(f"{sentence} {following}"):
            return match[0]
    return ""


def _tolerance(sentence: str) -> StatedTolerance | None:
    bounds: dict[str, float] = {}
    words = ""
    for match in _ERROR.finditer(sentence):
        power = match["power"] or match["exponent"]
        bound = float(f"1e-{power}") if power else float(match["decimal"])
        for kind in ("absolute", "relative"):
            if kind in match["kind"].lower() and 0 < bound <= 0.5:
                bounds.setdefault(kind, bound)
                words = words or match[0]
    if not bounds and (match := _WITHIN.search(sentence)):
        power = match["power"] or match["exponent"]
        return StatedTolerance(float(f"1e-{power}") if power else float(match["decimal"]), None, match[0])
    return StatedTolerance(bounds.get("absolute"), bounds.get("relative"), words) if bounds else None


# The error that the default comparison allows, absolute or relative, for numbers with a decimal point.
DEFAULT_ERROR = 1e-6
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
# Sets write these in several ways, which shows no significant case.
_DECISIONS = frozenset({"yes", "no"})


def with_stated_comparison(problem: Problem) -> tuple[Problem, DefectFlag | None]:
    """Return the problem with the comparison of its statement, and a flag. Returns it unchanged if there is
    none."""
    tests = problem.tests
    if not isinstance(tests, StdinTests | CallTests) or problem.checker is not None:
        return problem, None
    if problem.compare.mode not in ("tokens", "floats", "ignore_case"):
        return problem, None
    freedom = freedom_of(problem.statement)
    if isinstance(tests, CallTests):
        compare = _compare_values(problem.compare, tests, freedom)
    else:
        compare = _compare(problem.compare, tests, freedom)
    if compare == problem.compare:
        return problem, None
    quoted = [freedom.any_case, freedom.tolerance.words if freedom.tolerance else ""]
    if isinstance(tests, CallTests):
        quoted.append(freedom.any_order)
    words = " and ".join(" ".join(text.split())[:80] for text in quoted if text)
    detail = f'{comparison_text(compare)}, since the statement says "{words}"'
    return msgspec.structs.replace(problem, compare=compare), DefectFlag("comparison_set", detail)


def comparison_text(compare: Compare) -> str:
    """Return a comparison as a short text."""
    bounds = [f"{name} {bound:g}" for name in ("abs", "rel") if (bound := getattr(compare, name)) is not None]
    order = [f"order {compare.order}"] if compare.order else []
    flags = [name for name in ("ignore_repeats", "any_case") if getattr(compare, name)]
    return " ".join([compare.mode, *bounds, *order, *flags])


def _compare(compare: Compare, tests: StdinTests, freedom: _Freedom) -> Compare:
    # Two expected words that differ only in case show that the sentence is about something else.
    folds = bool(freedom.any_case) and not _case_matters(tests)
    tolerance = freedom.tolerance
    # Integers next to reals may be counts, which a tolerance would confuse.
    counts = _has_integers(tests) and any("." in token for token in _numbers(tests))
    if tolerance is not None and not counts:
        bounds = (_looser(compare.abs, tolerance.abs), _looser(compare.rel, tolerance.rel))
        if max(bounds) > DEFAULT_ERROR or _has_integers(tests):
            # The default validator of Kattis ignores case and compares numbers within bounds.
            return Compare("kattis" if folds or compare.mode == "ignore_case" else "floats", *bounds)
    if folds and compare.mode == "tokens":
        return Compare("ignore_case")
    if folds and compare.mode == "floats":
        return Compare("kattis", _looser(compare.abs, None), _looser(compare.rel, None))
    return compare


def _compare_values(compare: Compare, tests: CallTests, freedom: _Freedom) -> Compare:
    """Return the comparison of returned values. Those of operations, and of Python literals, are left."""
    expected = [case.expected for case in tests.cases]
    if tests.function is None or tests.literals:
        return compare
    ordered = freedom.any_order and all(isinstance(value, list) for value in expected)
    numbers, texts = leaves(expected)
    # Integers next to reals may be counts, as in text.
    error = freedom.tolerance if numbers and len(set(map(type, numbers))) == 1 else None
    folds = freedom.any_case and len({text.casefold() for text in texts}) == len(texts) > 0
    if not (ordered or error or folds):
        return compare
    return Compare(
        "values",
        abs=error.abs if error else None,
        rel=error.rel if error else None,
        order="any" if ordered else UNSET,
        any_case=True if folds else UNSET,
    )


def leaves(values: list[Any]) -> tuple[list[int | float], set[str]]:
    """Return the numbers, and the different texts, in expected values."""
    numbers: list[int | float] = []
    texts: set[str] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += cast("list[Any]", value)
        elif isinstance(value, str):
            texts.add(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers.append(value)
    return numbers, texts


def _looser(before: float | None, allowed: float | None) -> float:
    return max(DEFAULT_ERROR if before is None else before, allowed or 0.0)


def _numbers(tests: StdinTests) -> set[str]:
    return {token for case in tests.cases for token in case.output.split() if _NUMBER.fullmatch(token)}


def _has_integers(tests: StdinTests) -> bool:
    return any("." not in token for token in _numbers(tests))


def _case_matters(tests: StdinTests) -> bool:
    """Return whether two expected words differ only in their letter case."""
    words = {word for case in tests.cases for word in case.output.split()}
    words = {word for word in words if word.casefold() not in _DECISIONS}
    return len({word.casefold() for word in words}) < len(words)


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


def _stricter(compare: Compare, tolerance: StatedTolerance) -> bool:
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
