"""The data card as one self-contained page.

Ids, reasons and details are untrusted text. All of it is escaped, the page has no script, and its content
security policy forbids loading anything.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

import msgspec

from whetstone.core.assets.page import asset, page
from whetstone.data.card import (
    CARD_FILE,
    PAGE_FILE,
    Card,
    DropReport,
    PipelineRecord,
    ReasonCount,
    SourceRecord,
)
from whetstone.data.decisions import ProblemDecision

_PACKAGE = "whetstone.data"
# Most rows of one table of counts; one more row counts the rest.
_ROWS = 24

# Problems that the page names with their added tests; `card.json` has all of them.
_LISTED = 200

# The counts of a card that are shown: field, title, and a note.
PROPERTIES = (
    ("by_source", "Problems by source", ""),
    ("kinds", "Kinds of test", "how a program is asked"),
    ("tests_per_problem", "Tests per problem", ""),
    ("answers", "What counts as right", "comparison or checker"),
    ("languages", "Language asked for", ""),
    ("reference_languages", "Languages of references", "programs"),
    ("references_per_problem", "References per problem", ""),
    ("difficulty", "Difficulty", "as the source says it: a word, or a rating"),
    ("pass_rate", "Solved by a model", "share of its replies, where it was measured"),
    ("licences", "Licences", ""),
)


def render(card: Card) -> str:
    """Return the page as HTML."""
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    main = Template(asset(_PACKAGE, "card.html")).substitute(
        sources=_sources(card.sources),
        drop_report=_drop_report(card),
        pipeline=_pipeline(card.pipeline),
        reasons=_reasons(card.drop_report),
        added_tests=_added_tests(card),
        properties="".join(_property(card, *row) for row in PROPERTIES if getattr(card, row[0])),
    )
    return page(
        kind="data card",
        title="Data card",
        headline=_headline(card),
        main=main,
        footer=f"{html.escape(versions)}. The same figures as data are in card.json; "
        "every decision is a row of decisions.jsonl.",
        css=asset(_PACKAGE, "card.css"),
    )


def write_card(folder: Path, card: Card) -> None:
    """Write ``card.json`` and ``card.html`` into ``folder``."""
    (folder / CARD_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n")
    # Ids may have lone surrogates, which UTF-8 cannot encode.
    (folder / PAGE_FILE).write_text(render(card), encoding="utf-8", errors="replace")


def _headline(card: Card) -> str:
    total = sum(card.problems.values())
    facts = [(split, f"{count:,} problems") for split, count in card.problems.items()]
    facts += [("tests", f"{card.tests:,}"), ("sources", f"{len(card.by_source)}")]
    items = "".join(f"<div><dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd></div>" for k, v in facts)
    return f"<h1>{total:,} problems</h1><dl class='facts'>{items}</dl>"


def _sources(sources: list[SourceRecord]) -> str:
    if not sources:
        return '<p class="note">not made by data prepare: the sources are not known</p>'
    rows = (
        f'<tr><th scope="row">{html.escape(s.name)}</th><td>{html.escape(s.title)}</td>'
        f"<td>{_origin(s)}</td><td>{html.escape(s.licence)}</td>"
        f'<td class="number">{s.rows:,}</td><td class="number">{s.problems:,}</td></tr>'
        for s in sources
    )
    return _table("sources", ("source", "what it is", "from", "licence", "#rows", "#problems"), rows)


def _table(kind: str, heads: Sequence[str], rows: Iterable[str]) -> str:
    """Return a table of rows that are HTML. A head that begins with ``#`` is above numbers."""
    head = "".join(
        f'<th class="number">{word[1:]}</th>' if word.startswith("#") else f"<th>{word}</th>"
        for word in heads
    ).replace("<th></th>", "<td></td>")
    labels = [word.removeprefix("#") for word in heads]
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{kind or "counts"}">'
        f'<table class="{kind} stack"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(_labelled(row, labels) for row in rows)}</tbody></table></div>"
    )


def _labelled(row: str, heads: Sequence[str]) -> str:
    """Return an HTML row with the head of its column in each cell, which narrow screens show."""
    labels = iter(heads)

    def cell(match: re.Match[str]) -> str:
        label = next(labels)
        return f'{match[0]} data-head="{label}"' if label else match[0]

    # Text is escaped, so these are the cells of the row.
    return re.sub(r"<t[dh](?=[ >])", cell, row)


def _origin(source: SourceRecord) -> str:
    files = f"{len(source.files)} files" if len(source.files) > 1 else "".join(source.files)
    first = f"; the first {source.first_only:,} problems" if source.first_only else ""
    if source.hub_id is None or source.commit is None:
        return f"local: {html.escape(files + first)}"
    commit = f'<span class="path">{html.escape(source.commit[:12])}</span>'
    return f"{html.escape(source.hub_id)} at {commit}{html.escape(first)}"


def _drop_report(card: Card) -> str:
    start = card.drop_report[0].read if card.drop_report else sum(card.problems.values())
    rows = sum(source.rows for source in card.sources)
    widest = max(start, rows, 1)
    lines = [_drop_row("rows", rows, None, widest)] if rows else []
    if not card.drop_report:
        lines.append(_drop_row("problems", start, None, widest))
    lines += [_drop_row(step.step, step.kept, step.dropped, widest) for step in card.drop_report]
    return _table("drops", ("step", "#kept", "#dropped", "#share", ""), lines)


def _pipeline(pipeline: PipelineRecord | None) -> str:
    """Return the steps of ``data build`` with the published counts; empty without a pipeline."""
    if pipeline is None:
        return ""
    rows = [("rows", "", _published_counts(pipeline, "rows"))] if pipeline.published_after("rows") else []
    rows += [
        (s.step, f"{s.kept:,} of {s.read:,}", _published_counts(pipeline, s.step)) for s in pipeline.steps
    ]
    body = (
        f'<tr><th scope="row">{html.escape(step)}</th><td class="number">{counts}</td>'
        f"<td>{html.escape(published)}</td></tr>"
        for step, counts, published in rows
    )
    return (
        f'<section class="panel wide"><h2>Pipeline: {html.escape(pipeline.name)}</h2>'
        f"<p>{html.escape(pipeline.title)}</p>{_table('', ('step', '#kept', 'published'), body)}</section>"
    )


def _published_counts(pipeline: PipelineRecord, step: str) -> str:
    return "; ".join(f"{count.count:,}: {count.where}" for count in pipeline.published_after(step))


def _drop_row(name: str, kept: int, dropped: int | None, widest: int) -> str:
    """Return a row of the drop report; without ``dropped`` it is a count, not a step."""
    lost = dropped or 0
    share = f"{kept / (kept + lost):.1%}" if dropped is not None and kept + lost else ""
    bars = "".join(
        f'<div class="bar{extra}{"" if count else " zero"}" style="width:{100 * count / widest:.2f}%"></div>'
        for count, extra in ((kept, ""), (lost, " lost"))
    )
    return (
        f'<tr><th scope="row">{html.escape(name)}</th><td class="number">{kept:,}</td>'
        f'<td class="number">{"" if dropped is None else f"{dropped:,}"}</td><td class="number">{share}</td>'
        f'<td class="lane"><div class="pair">{bars}</div></td></tr>'
    )


def _reasons(drop_report: list[DropReport]) -> str:
    rows = [_reason(step.step, r) for step in drop_report for r in step.reasons if r.action != "keep"]
    if not rows:
        return '<p class="note">nothing was dropped or marked</p>'
    return _table("reasons", ("step", "", "reason", "#problems", "some of them"), rows)


def _reason(step: str, reason: ReasonCount) -> str:
    word, kind = ("dropped", "dropped") if reason.action == "drop" else ("marked", "mark")
    examples = "".join(f"<li>{_example(decision)}</li>" for decision in reason.examples)
    return (
        f'<tr><td>{html.escape(step)}</td><td class="{kind}">{word}</td>'
        f'<th scope="row">{html.escape(reason.reason.replace("_", " "))}</th>'
        f'<td class="number">{reason.count:,}</td><td class="detail"><ul>{examples}</ul></td></tr>'
    )


def _added_tests(card: Card) -> str:
    """Return a table of the tests that ``data strengthen`` added; empty if there are none."""
    if not card.strengthened:
        return ""
    body = (
        f'<tr><th scope="row"><code>{html.escape(one.problem_id)}</code></th>'
        f"<td>{one.added} from number {one.first}</td>"
        f'<td class="detail">{html.escape(one.evidence)}</td></tr>'
        for one in card.strengthened[:_LISTED]
    )
    count = len(card.strengthened)
    more = f'<p class="note">{count - _LISTED} more in card.json</p>' if count > _LISTED else ""
    table = _table("reasons", ("problem", "tests", "their purpose"), body)
    return f'<section class="panel wide"><h2>Problems with added tests ({count})</h2>{table}{more}</section>'


def _example(decision: ProblemDecision) -> str:
    detail = f" — {html.escape(decision.detail)}" if decision.detail else ""
    return f"<code>{html.escape(decision.problem_id)}</code>{detail}"


def _property(card: Card, name: str, title: str, note: str) -> str:
    shown: list[tuple[str, int]] = list(getattr(card, name).items())
    if len(shown) > _ROWS:
        rest = shown[_ROWS:]
        shown = [*shown[:_ROWS], (f"{len(rest)} more", sum(count for _, count in rest))]
    about = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return f'<section class="panel"><h2>{html.escape(title)}</h2>{about}{_bars(shown)}</section>'


def _bars(counts: list[tuple[str, int]]) -> str:
    total = sum(count for _, count in counts)
    widest = max(count for _, count in counts)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td class="count">{count:,}</td>'
        f'<td class="share">{count / total:.1%}</td>'
        f'<td><div class="bar" style="width:{100 * count / widest:.2f}%"></div></td></tr>'
        for name, count in counts
    )
    return f'<div class="scroll"><table class="bars"><tbody>{rows}</tbody></table></div>'
