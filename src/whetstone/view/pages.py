"""The pages: those of reports, as shells around what their scripts fetch, and a list of all."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from string import Template

from whetstone import __version__
from whetstone.assets.page import asset, page
from whetstone.data.card import read_card
from whetstone.data.card_page import render
from whetstone.errors import UserError
from whetstone.report.evaluation_page import MOST_HEAD, MOST_TAIL, PROBLEM_SCRIPTS, problems_main
from whetstone.report.page import MAX_TEXT, PACKAGE, SCRIPTS, run_main
from whetstone.view.answers import marked_runs, sides
from whetstone.view.library import Library
from whetstone.view.problems import MOST_REPLIES

VIEW = "whetstone.view"
_SHOWN = dict.fromkeys((*SCRIPTS, *PROBLEM_SCRIPTS), PACKAGE)
_LIVE = ("live.js", "list.js", "run_live.js", "signs.js", "curves_live.js", "evaluation_live.js")
SCRIPT_FILES = {f"/assets/{name}": (package, name) for name, package in _SHOWN.items()} | {
    f"/assets/view/{name}": (VIEW, name) for name in _LIVE
}
"""The scripts by path: the package and the file of each."""

Given = Mapping[str, str]
Page = Callable[[Library, Given], str]


def list_page(library: Library, given: Given) -> str:
    """Everything that there is."""
    names = ", ".join(map(str, library.roots))
    head = f"<h1>Runs</h1><p>{html.escape(names)}</p>"
    return _page("view", "Runs", head, asset(VIEW, "list.html"), ["browse.js"], ["live.js", "list.js"])


def run_page(library: Library, given: Given) -> str:
    """A run, as its report shows it, from whatever is there now."""
    place = library.place(given.get("id", ""), "run")
    _, parts = library.run(place.id).fragments()
    note = f"All that there are, also while more come; texts longer than {MAX_TEXT} characters are cut."
    main = Template(asset(VIEW, "run.html")).substitute(main=run_main(parts, note))
    head = f'<div id="headline">{parts.headline}</div><p class="note">{html.escape(place.name)}</p>'
    return _page("run", place.name, head, main, SCRIPTS, ["live.js", "run_live.js", "signs.js"])


def evaluation_page(library: Library, given: Given) -> str:
    """An evaluation, or two side by side."""
    places = sides(library, given)
    kind = "evaluation" if len(places) == 1 else "comparison"
    note = (
        f"The first {MOST_REPLIES} replies to each problem; "
        f"texts longer than {MOST_HEAD + MOST_TAIL} characters are cut."
    )
    main = '<div id="figures"></div>' + problems_main(note, len(places))
    title = " and ".join(place.name for place in places)
    head = f"<h1>{html.escape(title)}</h1>"
    return _page(kind, title, head, main, PROBLEM_SCRIPTS, ["live.js", "evaluation_live.js"])


def curves_page(library: Library, given: Given) -> str:
    """Several runs' curves over one another."""
    names = ", ".join(place.name for place in marked_runs(library, given))
    head = f"<h1>Curves</h1><p>{html.escape(names)}</p>"
    main = '<div id="curves"><section class="panel wide"><p class="empty">reading</p></section></div>'
    return _page("curves", "Curves", head, main, ["browse.js", "charts.js"], ["live.js", "curves_live.js"])


def card_page(library: Library, given: Given) -> str:
    """The card of a data set."""
    card = read_card(library.place(given.get("id", ""), "data").path)
    if card is None:
        raise UserError(
            "its card.json is not one that this version reads; `whetstone data prepare` writes it anew"
        )
    return render(card)


PAGES: dict[str, Page] = {
    "/": list_page,
    "/run": run_page,
    "/curves": curves_page,
    "/evaluation": evaluation_page,
    "/data": card_page,
}
"""By path."""


def _page(kind: str, title: str, head: str, main: str, shown: Sequence[str], live: Sequence[str]) -> str:
    """A page. ``head`` is HTML; ``shown`` are scripts that reports have too, ``live`` those of our own."""
    back = "" if kind == "view" else '<p class="back"><a href="/">All runs</a></p>'
    return page(
        kind=kind,
        title=title,
        headline=back + head + '<p class="live" id="live" aria-live="polite"></p>',
        main=main,
        footer=f"Whetstone {html.escape(__version__)}. It only reads; what it shows is in the folders.",
        css=asset(PACKAGE, "page.css") + asset(VIEW, "view.css"),
        linked=[*(f"/assets/{name}" for name in shown), *(f"/assets/view/{name}" for name in live)],
    )
