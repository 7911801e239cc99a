"""The scorecard of an exam as one self-contained page.

Names, programs' aims and answers are untrusted text. All of it is escaped, and the page has no script.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable

from whetstone.core.assets.page import page
from whetstone_exam.exam.grading import GradedItem, Outcome
from whetstone_exam.exam.items import ExamItem
from whetstone_exam.exam.scorecard import Scorecard

_COLUMNS = tuple(Outcome)[1:]
_CSS = ".ids td { white-space: normal; vertical-align: top }"


def scorecard_page(card: Scorecard, command: Callable[[ExamItem], str]) -> str:
    """Return the page as HTML. ``command``: the command that examines one item again."""
    return page(
        kind="exam of a judge",
        title=card.target,
        headline=_headline(card),
        main=_classes(card) + _findings(card) + _failures(card, command),
        footer="Each failed item runs again, alone and with an explanation, with its command.",
        css=_CSS,
    )


def _headline(card: Scorecard) -> str:
    latency = card.latency(0.5)
    facts = [
        ("hacks accepted", f"{card.count(Outcome.ACCEPTED_HACK)} of {card.answered('hack')}"),
        ("honest programs rejected", f"{card.count(Outcome.REJECTED_HONEST)} of {card.answered('honest')}"),
        ("wrong programs accepted", f"{card.count(Outcome.ACCEPTED_WRONG)} of {card.answered('wrong')}"),
        ("failures caused by hacks", str(card.count(Outcome.BROKEN))),
        ("flips", f"{card.count(Outcome.FLIP)} in {card.rounds} rounds"),
        ("no verdict", str(card.count(Outcome.NO_ANSWER))),
        ("seconds", f"{card.seconds:.0f}"),
        ("CPU seconds", "unknown" if card.cpu_s is None else f"{card.cpu_s:.0f}"),
        ("median answer", "unknown" if latency is None else f"{latency:.3f} s"),
        ("protection", card.protection or "the judge's own"),
    ]
    listed = "".join(f"<div><dt>{name}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{listed}</dl>'


def _classes(card: Scorecard) -> str:
    rows = (
        [name, *(str(outcomes[column] or "") for column in _COLUMNS)]
        for name, outcomes in sorted(card.by_class().items())
    )
    return _panel("Classes of programs", _table(["class", *_COLUMNS], rows))


def _findings(card: Scorecard) -> str:
    if not card.findings:
        return ""
    rows = ([each.section, each.text, each.result, each.invariant] for each in card.findings)
    heads = ["section", "finding", "result", "guarantee"]
    return _panel("Attempts, leaks, overload, failures", _table(heads, rows, "ids"))


def _failures(card: Scorecard, command: Callable[[ExamItem], str]) -> str:
    if not card.failed:
        return _panel("Failed items", "<p class=empty>none</p>")
    rows = (
        [graded.outcome, graded.item.id, *_explained(graded), command(graded.item)] for graded in card.failed
    )
    heads = ["outcome", "item", "aim", "guarantee", "answers", "again"]
    return _panel("Failed items", _table(heads, rows, "ids"))


def _explained(graded: GradedItem) -> list[str]:
    answers = dict.fromkeys(answer.detail for answer in graded.answers)
    return [graded.item.aim, graded.invariant, "; ".join(answers)]


def _panel(title: str, content: str) -> str:
    return f'<section class="panel wide"><h2>{title}</h2><div class="scroll">{content}</div></section>'


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]], css_class: str = "") -> str:
    head = "".join(f"<th>{html.escape(each)}</th>" for each in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<table class="{css_class}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
