"""TACO, and the part of it that likaixin verified: problems of nine sites with many solutions each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

from whetstone.data.sources.programs import references
from whetstone.data.sources.published import known, limits_of, names_in
from whetstone.data.sources.source import ColumnError, Row, Source, json_of, text_of
from whetstone.data.sources.test_fields import read_tests
from whetstone.problem import Problem


def _converter(name: str, licence: str) -> Callable[[Row, str], Iterator[Problem]]:
    def convert(row: Row, own_id: str) -> Iterator[Problem]:
        starter = text_of(row, "starter_code", default="")
        programs, left_out = references(_solutions(row))
        yield Problem(
            id=f"{name}/{own_id}",
            statement=text_of(row, "question"),
            tests=read_tests(
                text_of(row, "input_output"),
                starter=starter,
                programs=[program.source for program in programs],
            ),
            starter=starter or None,
            limits=limits_of(row.get("time_limit"), row.get("memory_limit")),
            references=programs,
            source=name,
            meta=_facts(row, licence) | known(references_left_out=left_out),
        )

    return convert


def _solutions(row: Row) -> list[Any]:
    """A list of programs, or one in text."""
    value = row.get("solutions")
    if isinstance(value, str):
        value = json_of(row, "solutions", empty=[])
    if not isinstance(value, list):
        raise ColumnError("solutions", "missing" if "solutions" not in row else f"a {type(value).__name__}")
    return value


def _facts(row: Row, licence: str) -> dict[str, Any]:
    pictures = row.get("picture_num")
    return known(
        licence=licence,
        name=row.get("name"),
        difficulty=row.get("difficulty"),
        url=row.get("url"),
        origin=row.get("source"),
        tags=names_in(row.get("tags")),
        skills=names_in(row.get("skill_types")),
        contest_date=_day(row.get("date")),
        pictures=int(pictures) if isinstance(pictures, str | int) and str(pictures).isdecimal() else 0,
        time_limit=row.get("time_limit"),
        memory_limit=row.get("memory_limit"),
    )


def _day(value: Any) -> str | None:
    """A date of ten characters; other dates are no contest's."""
    try:
        return date.fromisoformat(str(value)[:10]).isoformat()
    except ValueError:
        return None


def _source(name: str, title: str, hub_id: str, revision: str, files: dict[str, str], licence: str) -> Source:
    return Source(
        name=name,
        title=title,
        hub_id=hub_id,
        revision=revision,
        files=files,
        columns={
            "question": "the statement, as text",
            "solutions": "a list of programs, or one as JSON in text",
            "input_output": "an object with `inputs`, `outputs` and perhaps `fn_name`, as JSON in text",
        },
        licence=licence,
        convert=_converter(name, licence),
        id_columns=("id",),  # TACO itself has none
        example=f"whetstone data prepare {name} --out sets/{name}",
    )


SOURCES = (
    _source(
        "taco",
        "TACO: 26,443 problems of nine sites, their solutions not verified",
        "BAAI/TACO",
        "fc626850cb2d0a4fe1b521706f94bf2582f58931",
        {"train": "train/data-*.arrow", "test": "test/data-*.arrow"},
        "Apache-2.0, parts CC-BY-SA, CC-BY, MIT",
    ),
    _source(
        "taco-verified",
        "TACO-verified: 12,898 problems of TACO whose solutions pass their tests",
        "likaixin/TACO-verified",
        "fb28010",
        {"train": "taco_verified.json"},
        "MIT",
    ),
)
