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

from whetstone import __version__
from whetstone.assets.page import asset, page
from whetstone.outputs import write_file
from whetstone.report.panels import Panels
from whetstone.report.rollouts import Rollout
from whetstone.report.run_data import RunData, read_run
from whetstone.report.summary import headline, result_table

_PACKAGE = "whetstone.report"
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


def render(run: RunData, partners: Mapping[str, RunData] | None = None) -> str:
    """The page as text."""
    panels = Panels(run)
    curves, charts = panels.all(), panels.hover
    for name, partner in (partners or {}).items():
        beside = Panels(partner)
        curves += beside.of_partner(name)
        charts = charts | beside.hover
    data = {"charts": charts, "rollouts": [_row(rollout) for rollout in run.rollouts]}
    main = Template(asset(_PACKAGE, "page.html")).substitute(
        result=result_table(run), curves=curves, rollouts_note=html.escape(_rollouts_note(run))
    )
    return page(
        kind="run",
        title=run.name,
        headline=headline(run),
        main=main,
        footer=f"Whetstone {html.escape(__version__)}. Every figure here is read from metrics.jsonl, "
        "evaluations and rollouts of the run.",
        css=asset(_PACKAGE, "page.css"),
        data=script_json(data),
        script=asset(_PACKAGE, "browse.js") + asset(_PACKAGE, "page.js"),
    )


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element: no text in it can end the element or open another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _row(rollout: Rollout) -> dict[str, Any]:
    return {
        "step": rollout.step,
        "problem": rollout.problem_id,
        "prompt": _clip(rollout.prompt),
        "reply": _clip(rollout.reply),
        "program": None if rollout.program is None else _clip(rollout.program),
        "verdict": rollout.verdict.value if rollout.verdict else "judge_error",
        "reason": _clip(rollout.reason) if rollout.verdict else "never judged",
        "reward": rollout.reward,
        "finish": rollout.finish_reason,
        "tokens": rollout.tokens,
        "versions": [rollout.version_min, rollout.version_max],
        "cases": [
            {
                "verdict": case.verdict.value,
                "cpu_ms": round(case.cpu_s * 1000, 2),
                "wall_ms": round(case.wall_s * 1000, 2),
                "peak_mb": round(case.peak_bytes / 2**20, 1),
                "reason": _clip(case.reason),
            }
            for case in rollout.cases
        ],
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
