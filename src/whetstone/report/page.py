"""The pages: one HTML frame, one script, and the JSON data that the script shows.

`whetstone report` puts the data and the script into the file. `whetstone view` serves the same page, whose
script requests the same data. Replies are hostile text. They reach the page as JSON only, and the script
inserts them as text nodes. In a file, ``<``, ``>`` and ``&`` of the JSON are escaped. A content security
policy forbids the page to load anything.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import msgspec

from whetstone import __version__
from whetstone.core.assets.page import asset, page
from whetstone.core.outputs import write_file
from whetstone.data.case_inputs import CaseInputs
from whetstone.report.run_data import RunData, problem_sets, read_run
from whetstone.report.run_page import partners_of, rollout_row, rollouts_note, run_page

_PACKAGE = "whetstone.report"
_CHART_LIBRARY = ("uPlot.LICENSE", "uPlot.iife.min.js")
_SCRIPTS = (
    *("dom.js", "charts.js", "browse.js", "reply.js"),
    *("run.js", "evaluation.js", "signs.js", "lists.js", "start.js"),
)
_ZOOM = (
    "In a chart: drag to zoom, double-click or press Escape to zoom out, move the cursor with the arrow keys."
)


def script() -> str:
    """Return the script of every page, with the chart library and its licence."""
    licence, library = (asset(_PACKAGE, name) for name in _CHART_LIBRARY)
    return "\n".join([f"/*\n{licence}\n*/", library, *(asset(_PACKAGE, name) for name in _SCRIPTS)])


def html_page(kind: str, title: str, data: dict[str, Any], *, served_script: str = "") -> str:
    """Return a page as text.

    kind: run, evaluation, curves or list. It names the HTML file and the function of the script.
    data: the initial data of the script.
    served_script: the path of the script on a server; if empty, the page contains the script.
    """
    return page(
        kind="view" if kind == "list" else kind,
        title=title,
        headline='<div id="head"></div><p class="live" id="live" aria-live="polite"></p>',
        main=asset(_PACKAGE, f"{kind}.html"),
        footer=f"Whetstone {__version__}. {_ZOOM if kind in ('run', 'curves') else ''}",
        css=asset(_PACKAGE, "uPlot.min.css") + asset(_PACKAGE, "page.css"),
        data=script_json({"kind": kind, **data}),
        script="" if served_script else script(),
        served_script=served_script,
    )


def missing_page(message: str) -> str:
    """Return the page of an address under which there is nothing, with the reason."""
    reason = (
        f'<section class="panel wide"><p>{html.escape(message)}</p><p><a href="/">All runs</a></p></section>'
    )
    headline, footer = "<h1>There is no such page</h1>", f"Whetstone {__version__}."
    css = asset(_PACKAGE, "page.css")
    return page(kind="view", title="no such page", headline=headline, main=reason, footer=footer, css=css)


def write_page(folder: str | Path, out: str | Path | None = None, *, max_rollouts: int = 400) -> Path:
    """Write the page of the run in ``folder`` to ``out`` (``folder/report.html``). Returns its path.

    Raises UserError if the folder is no run or the page cannot be written.
    """
    target = Path(out) if out else Path(folder) / "report.html"
    run = read_run(folder, max_rollouts=max_rollouts)
    title = run.folder.resolve().name
    text = html_page("run", title, run_report(run, partners_of(Path(folder))))
    write_file(target, [text.encode(errors="replace")])
    return target


def run_report(run: RunData, partners: dict[str, RunData]) -> dict[str, Any]:
    """Return the data of a page that contains its rollouts."""
    inputs = CaseInputs(problem_sets(run.recipe))
    rows = [rollout_row(each, inputs.of(each.rollout.problem_id)) for each in run.rollouts]
    return {"page": run_page(run, partners), "rows": rows, "note": rollouts_note(run)}


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element: no text in it can end the element or open another
    one."""
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Replies may contain `</script>`. JSON escapes keep the value and cannot end the element.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
