"""What the scripts of the pages ask for: plain data, and the parts of a page that have changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from whetstone.errors import UserError
from whetstone.evaluate.results import EVALUATION_FILE
from whetstone.report.evaluation_index import EvaluationIndex
from whetstone.report.evaluation_page import figures_section
from whetstone.report.overlay import MOST_RUNS, overlay
from whetstone.report.page import rollout_row
from whetstone.report.query import query_of, whole
from whetstone.report.rollout_index import FILTERS, SORTS
from whetstone.report.run_data import folder_stamp, kept_evaluation
from whetstone.report.signs import sudden_rises
from whetstone.view import problems
from whetstone.view.library import Library
from whetstone.view.places import Place
from whetstone.view.state import State, state_of

Given = Mapping[str, str]
Answer = Callable[[Library, Given], Any]


def everything(library: Library, given: Given) -> Any:
    """The list of all: runs with how they stand, evaluations with what they say, data sets."""
    rows: list[dict[str, Any]] = []
    for place in library.places().values():
        row: dict[str, Any] = {"id": place.id, "kind": place.kind, "name": place.name, "run": place.run}
        try:
            if place.kind == "run":
                row["state"] = msgspec.to_builtins(_state(library, place))
            elif place.kind == "evaluation":
                row |= _evaluated(place)
        except UserError as error:
            row["broken"] = str(error)
        rows.append(row)
    return {"places": rows}


def run(library: Library, given: Given) -> Any:
    """How a run stands, and the parts of its page where they are not those that were ``seen``."""
    place = library.place(given.get("id", ""), "run")
    view = library.run(place.id)
    stamp, parts = view.fragments()
    state = msgspec.to_builtins(_state(library, place))
    new = None if given.get("seen") == stamp else msgspec.to_builtins(parts)
    found = [
        {"id": its.id, "name": its.path.name} for its in library.places().values() if its.run == place.id
    ]
    return {
        "stamp": stamp,
        "state": state,
        "parts": new,
        "rollouts": len(view.rollouts.all()),
        "evaluations": found,
    }


def rollouts(library: Library, given: Given) -> Any:
    """A page of a run's rollouts."""
    return library.run(given.get("id", "")).rollouts.page(query_of(given, FILTERS, SORTS))


def rollout_values(library: Library, given: Given) -> Any:
    """What rollouts can be filtered by."""
    return library.run(given.get("id", "")).rollouts.values()


def one_rollout(library: Library, given: Given) -> Any:
    """A rollout with its siblings."""
    row = whole(given, "row")
    group = library.run(given.get("id", "")).rollouts.group(whole(given, "step"), row)
    rows = [rollout_row(each) for each in group]
    return {"row": next(each for each in rows if each["row"] == row), "siblings": rows}


def evaluation(library: Library, given: Given) -> Any:
    """The figures of an evaluation, or of two, where they are not those that were ``seen``."""
    places = sides(library, given)
    stamp = repr([folder_stamp(place.path) for place in places])
    replies = sum(len(its) for place in places for its in library.evaluation(place.id).problems().values())
    figures = None if given.get("seen") == stamp else _figures(places)
    return {"stamp": stamp, "replies": replies, "figures": figures}


def problem_rows(library: Library, given: Given) -> Any:
    """A page of the problems of an evaluation, or of two."""
    name, indexes = _indexes(library, given)
    return problems.problem_page(name, indexes, query_of(given, problems.FILTERS, problems.SORTS))


def problem_values(library: Library, given: Given) -> Any:
    """What problems can be filtered by."""
    return problems.problem_values(*_indexes(library, given))


def one_problem(library: Library, given: Given) -> Any:
    """A problem with its prompt and replies."""
    return problems.one_problem(*_indexes(library, given), given.get("problem", ""))


def sides(library: Library, given: Given) -> list[Place]:
    """The evaluation that is asked for, and the one ``with`` which it is compared. Raises UserError."""
    ids = [given.get("id", ""), *([given["with"]] if given.get("with") else [])]
    return [library.place(id, "evaluation") for id in ids]


def signs(library: Library, given: Given) -> Any:
    """Where to look whether a run's reward is hacked."""
    view = library.run(given.get("id", ""))
    return {"rises": sudden_rises(view.records()), "signs": view.signs.found()}


def curves(library: Library, given: Given) -> Any:
    """The curves of several runs over one another, where they are not those that were ``seen``."""
    places = marked_runs(library, given)
    views = [library.run(place.id) for place in places]
    stamp = "-".join(view.stamp() for view in views)
    states = [f"{place.name} {_state(library, place).word}" for place in places]
    if given.get("seen") == stamp:
        return {"stamp": stamp, "states": states, "parts": None}
    drawn, charts = overlay([(place.name, view.data()) for place, view in zip(places, views, strict=True)])
    return {"stamp": stamp, "states": states, "parts": {"curves": drawn, "charts": charts}}


def marked_runs(library: Library, given: Given) -> list[Place]:
    """The runs whose ``ids`` are asked for. Raises UserError."""
    ids = [id for id in given.get("ids", "").split(",") if id]
    if not 1 <= len(ids) <= MOST_RUNS:
        raise UserError(
            f"{len(ids)} runs cannot be shown over one another; mark 2 to {MOST_RUNS} in the list"
        )
    return [library.place(id, "run") for id in dict.fromkeys(ids)]


ANSWERS: dict[str, Answer] = {
    "/v1/list": everything,
    "/v1/run": run,
    "/v1/rollouts": rollouts,
    "/v1/rollouts/values": rollout_values,
    "/v1/rollouts/one": one_rollout,
    "/v1/signs": signs,
    "/v1/curves": curves,
    "/v1/evaluation": evaluation,
    "/v1/problems": problem_rows,
    "/v1/problems/values": problem_values,
    "/v1/problems/one": one_problem,
}
"""By path."""


def _state(library: Library, place: Place) -> State:
    view = library.run(place.id)
    return state_of(place.path, view.records(), view.recipe(), library.roles)


def _evaluated(place: Place) -> dict[str, Any]:
    if not (place.path / EVALUATION_FILE).is_file():
        return {"figures": {}, "problems": 0, "ended": False}
    found = kept_evaluation(place.path)
    figures = {f"pass@{k}": estimate.value for k, estimate in found.pass_at.items()}
    return {"figures": figures, "problems": len(found.problems), "ended": True}


def _figures(places: list[Place]) -> str:
    if not all((place.path / EVALUATION_FILE).is_file() for place in places):
        return ""
    return figures_section(places[0].path.name, [kept_evaluation(place.path) for place in places])


def _indexes(library: Library, given: Given) -> tuple[str, list[EvaluationIndex]]:
    places = sides(library, given)
    return places[0].path.name, [library.evaluation(place.id) for place in places]
