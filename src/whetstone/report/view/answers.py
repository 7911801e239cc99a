"""The pages and the JSON that their script requests, by path."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from whetstone.core.errors import UserError
from whetstone.data.card import read_card
from whetstone.data.card_page import render
from whetstone.evaluate.results import EVALUATION_FILE
from whetstone.report.curves import MOST_RUNS, curves_page
from whetstone.report.evaluation_index import EvaluationIndex
from whetstone.report.evaluation_page import problem_replies, problem_rows, results_page
from whetstone.report.growing_files import file_stamp
from whetstone.report.page import html_page
from whetstone.report.panels import flat_records
from whetstone.report.rollout_index import RolloutSummary
from whetstone.report.run_data import cached_evaluation
from whetstone.report.run_page import recipe_facts, rollout_row
from whetstone.report.signs import sudden_rises
from whetstone.report.starts import read_notes
from whetstone.report.view.library import Library, State, ViewedFolder, state_of

SCRIPT_PATH = "/assets/page.js"
# The most replies to a problem that are shown for each side.
MOST_REPLIES = 16

Query = Mapping[str, str]
Answer = Callable[[Library, Query], Any]


def list_folders(library: Library, query: Query) -> Any:
    """Return the list of runs with their state, evaluations with their results, and data sets."""
    rows: list[dict[str, Any]] = []
    for place in library.places().values():
        row: dict[str, Any] = {"id": place.id, "kind": place.kind, "name": place.name, "run": place.run}
        try:
            if place.kind == "run":
                row["state"] = msgspec.to_builtins(_state(library, place))
                row["facts"] = recipe_facts(library.run(place.id).recipe())
                row["notes"] = read_notes(place.path).partition("\n")[0].lstrip("# ")
            elif place.kind == "evaluation":
                row |= _evaluation_summary(place)
        except UserError as error:
            row["broken"] = str(error)
        rows.append(row)
    return {"places": rows}


def run(library: Library, query: Query) -> Any:
    """Return the state of a run, and the data of its page unless the client has seen it."""
    place = library.place(query.get("id", ""), "run")
    view = library.run(place.id)
    stamp, page = view.page()
    places = library.places().values()
    return {
        "stamp": stamp,
        "state": _state(library, place),
        "page": None if query.get("seen") == stamp else page,
        "count": len(view.rollouts.all()),
        "places": [{"id": each.id, "name": each.path.name} for each in places if each.run == place.id],
    }


def rollouts(library: Library, query: Query) -> Any:
    """Return the short columns of all rollouts of a run."""
    rows = library.run(query.get("id", "")).rollouts.all()
    return {"fields": RolloutSummary.__struct_fields__, "rows": rows}


def search_rollouts(library: Library, query: Query) -> Any:
    """Return the positions, in the rows of :func:`rollouts`, of those that contain a text."""
    return library.run(query.get("id", "")).rollouts.search(query.get("text", ""))


def rollout_with_siblings(library: Library, query: Query) -> Any:
    """Return a rollout with its siblings."""
    row, place = _integer(query, "row"), library.place(query.get("id", ""), "run")
    group = library.run(place.id).rollouts.group(_integer(query, "step"), row)
    inputs = library.inputs(place)
    rows = [rollout_row(each, inputs.of(each.rollout.problem_id)) for each in group]
    return {"row": next(each for each in rows if each["row"] == row), "siblings": rows}


def signs(library: Library, query: Query) -> Any:
    """Return the signs of reward hacking in a run."""
    view = library.run(query.get("id", ""))
    return {"rises": sudden_rises(view.records()), "signs": view.signs.summary()}


def curves(library: Library, query: Query) -> Any:
    """Return the curves of several runs, unless the client has seen them."""
    places = _requested_runs(library, query)
    views = [library.run(place.id) for place in places]
    stamp = "-".join(view.stamp() for view in views)
    page = None
    if query.get("seen") != stamp:
        page = curves_page([(place.name, view.data()) for place, view in zip(places, views, strict=True)])
    states = [f"{place.name} {_state(library, place).word}" for place in places]
    return {"stamp": stamp, "states": states, "page": page}


def evaluation(library: Library, query: Query) -> Any:
    """Return the results of an evaluation, or of two, unless the client has seen them."""
    places = _sides(library, query)
    stamp = repr([file_stamp(place.path / EVALUATION_FILE) for place in places])
    page = None
    if query.get("seen") != stamp:
        complete = all((place.path / EVALUATION_FILE).is_file() for place in places)
        found = [cached_evaluation(place.path) for place in places] if complete else []
        results = [results_page(_results_name(places), found)] if found else []
        page = {"title": _names(places, " and "), "results": results}
    replies = (each for place in places for each in library.evaluation(place.id).problems().values())
    return {"stamp": stamp, "page": page, "count": sum(map(len, replies))}


def problems(library: Library, query: Query) -> Any:
    """Return the problems of an evaluation, or of two."""
    return {"rows": problem_rows(*_indexes(library, query))}


def search_problems(library: Library, query: Query) -> Any:
    """Return the positions, in the rows of :func:`problems`, of those that contain a text."""
    name, sides = _indexes(library, query)
    found = set[str]().union(*(side.problems_with_text(query.get("text", "")) for side in sides))
    return [place for place, row in enumerate(problem_rows(name, sides)) if row["id"] in found]


def problem_with_replies(library: Library, query: Query) -> Any:
    """Return a problem with its prompt and replies. Raises UserError if no side has the problem."""
    name, sides = _indexes(library, query)
    problem = query.get("problem", "")
    row = next((row for row in problem_rows(name, sides) if row["id"] == problem), None)
    if row is None:
        raise UserError(f"there is no problem {problem[:200]!r} here")
    inputs = library.inputs(_sides(library, query)[0]).of(problem)
    return row | problem_replies(sides, problem, MOST_REPLIES, row["sides"], inputs)


def metrics_csv(library: Library, query: Query) -> str:
    """Return all records of a run as CSV, with a column for each metric."""
    records = flat_records(library.run(query.get("id", "")).records())
    numbers = sorted({key for record in records for key in record} - {"step", "kind", "time"})
    text = io.StringIO()
    writer = csv.DictWriter(text, ["step", "kind", *numbers], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


CSV_PATH = "/v1/metrics.csv"

# The functions that make JSON, by path.
ANSWERS: dict[str, Answer] = {
    "/v1/list": list_folders,
    "/v1/run": run,
    "/v1/rollouts": rollouts,
    "/v1/rollouts/search": search_rollouts,
    "/v1/rollouts/one": rollout_with_siblings,
    "/v1/signs": signs,
    "/v1/curves": curves,
    "/v1/evaluation": evaluation,
    "/v1/problems": problems,
    "/v1/problems/search": search_problems,
    "/v1/problems/one": problem_with_replies,
}


def _card_page(library: Library, query: Query) -> str:
    card = read_card(library.place(query.get("id", ""), "data").path)
    if card is None:
        raise UserError("this version cannot read its card.json; `whetstone data prepare` writes a new one")
    return render(card)


# The functions that make pages, by path.
PAGES: dict[str, Callable[[Library, Query], str]] = {
    "/": lambda library, query: _page("list", ", ".join(map(str, library.roots))),
    "/run": lambda library, query: _page("run", library.place(query.get("id", ""), "run").name),
    "/curves": lambda library, query: _page("curves", _names(_requested_runs(library, query), ", ")),
    "/evaluation": lambda library, query: _page("evaluation", _names(_sides(library, query), " and ")),
    "/data": _card_page,
}


def _names(places: Sequence[ViewedFolder], between: str) -> str:
    return between.join(place.name for place in places)


def _page(kind: str, title: str) -> str:
    return html_page(kind, title, {"live": True, "title": title}, served_script=SCRIPT_PATH)


def _integer(query: Query, name: str) -> int:
    value = query.get(name, "")
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise UserError(f"{name}={value[:50]!r}: expected a whole number")
    return int(value)


def _sides(library: Library, query: Query) -> list[ViewedFolder]:
    """Return the requested evaluation, and the one ``with`` which it is compared. Raises UserError."""
    ids = [query.get("id", ""), *([query["with"]] if query.get("with") else [])]
    return [library.place(id, "evaluation") for id in ids]


def _results_name(places: Sequence[ViewedFolder]) -> str:
    """Return the title of the results, the same as `whetstone eval compare` prints."""
    return " and ".join(dict.fromkeys(place.path.name for place in places))


def _indexes(library: Library, query: Query) -> tuple[str, list[EvaluationIndex]]:
    places = _sides(library, query)
    return _results_name(places), [library.evaluation(place.id) for place in places]


def _requested_runs(library: Library, query: Query) -> list[ViewedFolder]:
    """Return the runs with the requested ``ids``. Raises UserError."""
    ids = [id for id in query.get("ids", "").split(",") if id]
    if not 1 <= len(ids) <= MOST_RUNS:
        raise UserError(f"{len(ids)} runs cannot be shown in one chart; select 2 to {MOST_RUNS} in the list")
    return [library.place(id, "run") for id in dict.fromkeys(ids)]


def _state(library: Library, place: ViewedFolder) -> State:
    view = library.run(place.id)
    return state_of(place.path, view.records(), view.recipe(), library.roles)


def _evaluation_summary(place: ViewedFolder) -> dict[str, Any]:
    if not (place.path / EVALUATION_FILE).is_file():
        return {"figures": {}, "problems": 0, "ended": False}
    found = cached_evaluation(place.path)
    figures = {name: estimate.value for name, estimate in found.estimates.items()}
    return {"figures": figures, "problems": len(found.problems), "ended": True}
