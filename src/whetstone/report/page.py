"""One self-contained HTML page of a run: result, curves, and a browser of its rollouts.

Replies are hostile text. They reach the page only as JSON inside a script element of a type that
browsers do not run, with every ``<``, ``>`` and ``&`` escaped, and the page's script shows them as
text. A content security policy forbids the page to load anything.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from msgspec import Struct

from whetstone import __version__
from whetstone.assets.page import asset, page
from whetstone.outputs import write_file
from whetstone.report.groups import Placed
from whetstone.report.panels import Panels
from whetstone.report.reply_rows import case_rows, error_line
from whetstone.report.rollout_index import SORTS
from whetstone.report.run_data import RunData, read_run
from whetstone.report.summary import headline, result_table

PACKAGE = "whetstone.report"
SCRIPTS = ("browse.js", "charts.js", "reply.js", "rollouts.js")
"""What the script of every page of a run stands on."""
PARTNERS = ("verifier",)
"""The folders of second models."""
MAX_TEXT = 20_000
"""Characters of a prompt, reply or program that the page holds; the Parquet file holds all."""


def write_page(folder: str | Path, out: str | Path | None = None, *, max_rollouts: int = 400) -> Path:
    """Write the page of the run in ``folder`` to ``out`` (``folder/report.html``); returns its path.

    Raises UserError when the folder is no run or the page cannot be written.
    """
    target = Path(out) if out else Path(folder) / "report.html"
    text = render(read_run(folder, max_rollouts=max_rollouts), partners_of(Path(folder)))
    write_file(target, [text.encode(errors="replace")])
    return target


def partners_of(folder: Path) -> dict[str, RunData]:
    """The other models that were trained with that of a run, by name: their folders are below its own."""
    found = [path.parent for path in folder.glob("*/metrics.jsonl") if path.parent.name in PARTNERS]
    return {path.name: read_run(path, max_rollouts=0) for path in sorted(found)}


class Fragments(Struct, frozen=True):
    """What changes of a run's page while it is written, as HTML, and what the tooltips of its charts show."""

    headline: str
    result: str
    curves: str
    charts: dict[str, Any]


def fragments(run: RunData, partners: Mapping[str, RunData] | None = None) -> Fragments:
    """The parts of the page of a run, with the models that were trained with its own."""
    panels = Panels(run)
    curves, charts = panels.all(), panels.hover
    for name, partner in (partners or {}).items():
        beside = Panels(partner)
        curves += beside.of_partner(name)
        charts = charts | beside.hover
    return Fragments(headline(run), result_table(run), curves, charts)


def render(run: RunData, partners: Mapping[str, RunData] | None = None) -> str:
    """The page as text."""
    parts = fragments(run, partners)
    data = {"charts": parts.charts, "rollouts": [rollout_row(each) for each in run.rollouts]}
    return page(
        kind="run",
        title=run.name,
        headline=parts.headline,
        main=run_main(parts, _rollouts_note(run)),
        footer=f"Whetstone {html.escape(__version__)}. Every figure here is read from metrics.jsonl, "
        "evaluations and rollouts of the run.",
        css=asset(PACKAGE, "page.css"),
        data=script_json(data),
        script="".join(asset(PACKAGE, name) for name in SCRIPTS) + asset(PACKAGE, "page.js"),
    )


def run_main(parts: Fragments, note: str) -> str:
    """The middle of the page of a run; ``note`` says which rollouts it holds."""
    orders = "".join(f"<option>{html.escape(name)}</option>" for name in SORTS)
    return Template(asset(PACKAGE, "page.html")).substitute(
        result=parts.result, curves=parts.curves, rollouts_note=html.escape(note), orders=orders
    )


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element: no text in it can end the element or open another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def rollout_row(placed: Placed) -> dict[str, Any]:
    """A rollout as the page's script shows it."""
    rollout = placed.rollout
    return {
        "step": rollout.step,
        "row": placed.row,
        "group": placed.group,
        "problem": rollout.problem_id,
        "prompt": _clip(rollout.prompt),
        "reply": _clip(rollout.reply),
        "program": None if rollout.program is None else _clip(rollout.program),
        "program_length": len(rollout.program or ""),
        "error_line": error_line(rollout.verdict, rollout.reason),
        "verdict": rollout.verdict.value if rollout.verdict else "judge_error",
        "reason": _clip(rollout.reason) if rollout.verdict else "never judged",
        "reward": rollout.reward,
        "above": placed.above,
        "finish": rollout.finish_reason,
        "tokens": rollout.tokens,
        "versions": [rollout.version_min, rollout.version_max],
        "cases": case_rows(rollout.cases, _clip),
    }


def _clip(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n… {len(text) - MAX_TEXT} more characters stand in the Parquet file"


def _rollouts_note(run: RunData) -> str:
    if not run.rollouts:
        return "This run's folder keeps none."
    if run.rollout_steps_read == run.rollout_steps_total and run.rollouts_total == len(run.rollouts):
        return f"All {len(run.rollouts)} replies of {run.rollout_steps_total} steps."
    return (
        f"{len(run.rollouts)} replies from {run.rollout_steps_read} of {run.rollout_steps_total} steps, "
        "evenly spread; --max-rollouts shows more, rollouts/*.parquet holds all."
    )
