"""The data card: the contents of a dataset, its sources, and the dropped problems with reasons.

It is counted while the dataset is written, without a second pass. ``card.json`` is for programs,
``card.html`` for readers. Neither has a time or a path of the machine, so the same dataset has the same card.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone import __version__
from whetstone.core.plugins import installed_plugins
from whetstone.core.problem import (
    NoTests,
    Problem,
    ProgramChecker,
    PythonChecker,
    StandardChecker,
    StdinTests,
    case_count,
)
from whetstone.data.decisions import ProblemDecision
from whetstone.data.pass_rate import rate_of
from whetstone.data.validate.comparing import comparison_text

CARD_FILE = "card.json"
PAGE_FILE = "card.html"
# Dropped or marked problems that the card shows for each reason.
EXAMPLES = 4
# Entry points of this group have the name of a field of the card, `strengthened`. Each is a function
# from a problem to a record of that field, or None.
EVIDENCE_PLUGINS = "whetstone.card_evidence"

# Untrusted values could be many. Further values of a property count as `other`.
_KINDS = 100
# Upper bounds of the bins with their labels.
_TEST_BINS = ((0, "0"), (1, "1"), (4, "2-4"), (9, "5-9"), (19, "10-19"), (49, "20-49"), (99, "50-99"))
_RATING_BIN = 400
_SHARE_BINS = (
    (0.0, "none"),
    (0.25, "up to 25%"),
    (0.5, "up to 50%"),
    (0.75, "up to 75%"),
    (0.999, "below all"),
)


class SourceRecord(Struct, frozen=True):
    """The origin of problems. ``commit`` is the commit on the hub; None for local files.

    ``rows`` is the number of rows read, ``problems`` what they gave. ``first_only`` > 0 is the limit on
    problems.
    """

    name: str
    title: str
    licence: str
    hub_id: str | None
    commit: str | None
    files: list[str]
    rows: int
    problems: int
    first_only: int = 0


class ReasonCount(Struct, frozen=True):
    """How often a step dropped or marked for one reason, and some of those problems."""

    action: str
    reason: str
    count: int
    examples: list[ProblemDecision]


class DropReport(Struct, frozen=True):
    """The effect of a step: how many problems it read, dropped and kept."""

    step: str
    read: int
    dropped: int
    kept: int
    reasons: list[ReasonCount]


class StrengthRecord(Struct, frozen=True):
    """Tests that ``data strengthen`` added to a problem, and their purpose as text."""

    problem_id: str
    first: int
    added: int
    evidence: str


class PipelineStepRecord(Struct, frozen=True):
    """A step of ``whetstone data build``: it read ``read`` problems (rows, for prepare) and kept ``kept``.

    ``reasons`` counts what was dropped and marked, such as ``drop few_tests``.
    """

    step: str
    read: int
    kept: int
    reasons: dict[str, int]


class PublishedCount(Struct, frozen=True):
    """A published count of problems after a step (``rows``: in the sources); ``where`` cites it."""

    after: str
    count: int
    where: str


class PipelineRecord(Struct, frozen=True):
    """The pipeline that made a dataset, step by step, with the published counts."""

    name: str
    title: str
    steps: list[PipelineStepRecord]
    published: list[PublishedCount]

    def published_after(self, step: str) -> list[PublishedCount]:
        """Return the published counts of that step."""
        return [count for count in self.published if count.after == step]


class Card(Struct, frozen=True):
    """The whole card. Mappings count problems (``reference_languages``: programs) by a property."""

    problems: dict[str, int]
    tests: int
    sources: list[SourceRecord]
    drop_report: list[DropReport]
    by_source: dict[str, int]
    kinds: dict[str, int]
    languages: dict[str, int]
    reference_languages: dict[str, int]
    references_per_problem: dict[str, int]
    tests_per_problem: dict[str, int]
    answers: dict[str, int]
    difficulty: dict[str, int]
    pass_rate: dict[str, int]
    licences: dict[str, int]
    versions: dict[str, str]
    strengthened: list[StrengthRecord] = []
    pipeline: PipelineRecord | None = None


class Census:
    """Counts problems and decisions while they are written, and builds the card."""

    def __init__(self) -> None:
        self._splits: Counter[str] = Counter()
        self._tests = 0
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _PROPERTIES}
        self._references: Counter[str] = Counter()
        self._evidence_of = installed_plugins(EVIDENCE_PLUGINS)
        self._evidence: dict[str, list[Any]] = {name: [] for name in self._evidence_of}
        self._reasons: dict[tuple[str, str, str], int] = {}
        self._examples: dict[tuple[str, str, str], list[ProblemDecision]] = {}

    def add(self, problem: Problem, split: str) -> None:
        """Count one problem."""
        self._splits[split] += 1
        self._tests += case_count(problem)
        for name, property_of in _PROPERTIES.items():
            _count(self._counts[name], property_of(problem))
        for reference in problem.references:
            _count(self._references, reference.language)
        for name, evidence_of in self._evidence_of.items():
            if (record := evidence_of(problem)) is not None:
                self._evidence[name].append(record)

    def decide(self, decision: ProblemDecision) -> None:
        """Count one decision."""
        key = (decision.step, decision.action, decision.reason)
        self._reasons[key] = self._reasons.get(key, 0) + 1
        examples = self._examples.setdefault(key, [])
        if len(examples) < EXAMPLES:
            examples.append(decision)

    def card(
        self, splits: Iterable[str], sources: Iterable[SourceRecord], pipeline: PipelineRecord | None = None
    ) -> Card:
        """Return the card of everything that was counted."""
        counts = {name: _sorted_counts(name, counter) for name, counter in self._counts.items()}
        return Card(
            problems={split: self._splits[split] for split in splits},
            tests=self._tests,
            sources=list(sources),
            drop_report=self._drop_report(),
            reference_languages=_sorted_counts("", self._references),
            versions={
                "whetstone": __version__,
                "python": platform.python_version(),
                "pyarrow": _pyarrow_version(),
            },
            strengthened=self._evidence.get("strengthened", []),
            pipeline=pipeline,
            **counts,
        )

    def _drop_report(self) -> list[DropReport]:
        """Compute the drop report from the last step backwards: a step read what it kept and dropped."""
        kept = self._splits.total()
        drop_report: list[DropReport] = []
        for step in reversed(list(dict.fromkeys(step for step, _, _ in self._reasons))):
            dropped = sum(n for (s, action, _), n in self._reasons.items() if (s, action) == (step, "drop"))
            drop_report.insert(0, DropReport(step, kept + dropped, dropped, kept, self._reasons_of(step)))
            kept += dropped
        return drop_report

    def _reasons_of(self, step: str) -> list[ReasonCount]:
        reasons = [
            ReasonCount(key[1], key[2], count, self._examples[key] if key[1] != "keep" else [])
            for key, count in self._reasons.items()
            if key[0] == step
        ]
        return sorted(reasons, key=lambda r: (r.action, -r.count, r.reason))


def _pyarrow_version() -> str:
    try:
        return version("pyarrow")
    except PackageNotFoundError:
        return "not installed"


def read_card(folder: Path) -> Card | None:
    """Return the card of a dataset folder; None if there is none that this version reads."""
    try:
        return msgspec.json.decode((folder / CARD_FILE).read_bytes(), type=Card)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _count(counter: Counter[str], value: str) -> None:
    counter[value if value in counter or len(counter) < _KINDS else "other"] += 1


def _sorted_counts(name: str, counter: Counter[str]) -> dict[str, int]:
    """Return bins in their order, and names by falling count."""
    order = {label: n for n, label in enumerate(_BINS.get(name, ()))}
    return dict(sorted(counter.items(), key=lambda item: (order.get(item[0], len(order)), -item[1], item[0])))


def _bin_of(value: float, bins: Iterable[tuple[float, str]], last: str) -> str:
    return next((label for bound, label in bins if value <= bound), last)


def _answers(problem: Problem) -> str:
    match problem.checker:
        case None:
            if isinstance(problem.tests, StdinTests):
                return f"compared: {problem.compare.mode}"
            if problem.compare.mode == "values":
                return f"compared: {comparison_text(problem.compare)}"
            return "by the environment" if isinstance(problem.tests, NoTests) else "by the tests"
        case StandardChecker(name=name):
            return f"checker {name}"
        case PythonChecker():
            return "checker in python"
        case ProgramChecker(language=language, protocol=protocol):
            return f"checker in {language} ({protocol})"


def _difficulty(problem: Problem) -> str:
    """Return the difficulty of the source: a word, or a rating in steps of 400."""
    value: Any = problem.meta.get("difficulty")
    if isinstance(value, int | float) and not isinstance(value, bool):
        low = int(value // _RATING_BIN) * _RATING_BIN
        return f"{low}-{low + _RATING_BIN - 1}"
    return str(value).strip() or "not said" if value is not None else "not said"


def _pass_rate(problem: Problem) -> str:
    rate = rate_of(problem)
    return _bin_of(rate.passed / rate.n, _SHARE_BINS, "all") if rate and rate.n else "not measured"


_PROPERTIES: dict[str, Callable[[Problem], str]] = {
    "by_source": lambda problem: problem.source or "not said",
    "kinds": lambda problem: str(problem.tests.__struct_config__.tag),
    "languages": lambda problem: problem.language,
    "references_per_problem": lambda problem: _bin_of(len(problem.references), _REFERENCE_BINS, "10 or more"),
    "tests_per_problem": lambda problem: _bin_of(case_count(problem), _TEST_BINS, "100 or more"),
    "answers": _answers,
    "difficulty": _difficulty,
    "pass_rate": _pass_rate,
    "licences": lambda problem: str(problem.meta.get("licence") or "not said"),
}
_REFERENCE_BINS = ((0, "0"), (1, "1"), (4, "2-4"), (9, "5-9"))
_BINS: dict[str, tuple[str, ...]] = {
    "references_per_problem": tuple(label for _, label in _REFERENCE_BINS),
    "tests_per_problem": tuple(label for _, label in _TEST_BINS),
    "pass_rate": (*(label for _, label in _SHARE_BINS), "all"),
}
