"""Signs of a run that learns nothing: each row of the table has records that it holds for, and twins just
below its bound for which nothing is said; terminal, page and metrics say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.report.synthetic_run import write_run
from whetstone.core.sample import Batch, Group, Sample
from whetstone.report.batch import batch_metrics
from whetstone.report.metrics import MetricsWriter
from whetstone.report.run_data import read_run
from whetstone.report.run_page import run_page
from whetstone.report.run_signs import SIGNS, WINDOW, SignWatch, found_signs, sign_rows

HEALTHY = {
    "kind": "train",
    "sample/replies": 100,
    "sample/cut": 30,
    "sample/special_tokens": 2,
    "sample/unscored": 4,
    "sample/shared_interpreter": 2,
    "verdict/accepted": 30,
    "verdict/wrong_answer": 40,
    "verdict/no_code": 30,
    "loss/updates": 2,
    "loss/skipped": 0,
    "loss/grad_norm": 0.3,
}
"""A step of a run that learns."""
SILENT: dict[str, float] = {"verdict/accepted": 6, "verdict/wrong_answer": 0, "verdict/no_code": 0}
SICK: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "cut": ({"sample/cut": 95}, {"sample/cut": 94}),
    "no_code": (
        {"verdict/accepted": 5, "verdict/wrong_answer": 0, "verdict/no_code": 95},
        {"verdict/accepted": 6, "verdict/wrong_answer": 0, "verdict/no_code": 94},
    ),
    "compile_error": (
        SILENT | {"verdict/accepted": 5, "verdict/compile_error": 95},
        SILENT | {"verdict/compile_error": 94},
    ),
    "runtime_error": (
        SILENT | {"verdict/accepted": 5, "verdict/runtime_error": 95},
        SILENT | {"verdict/runtime_error": 94},
    ),
    "time_limit": (
        SILENT | {"verdict/accepted": 5, "verdict/time_limit": 95},
        SILENT | {"verdict/time_limit": 94},
    ),
    "special_tokens": ({"sample/special_tokens": 20}, {"sample/special_tokens": 19}),
    "no_reward": (
        {"sample/unscored": 12, "sample/shared_interpreter": 2},
        {"sample/unscored": 11, "sample/shared_interpreter": 2},
    ),
    "forgeable": (
        {"sample/unscored": 10, "sample/shared_interpreter": 10},
        {"sample/unscored": 10, "sample/shared_interpreter": 9},
    ),
    "skipped": ({"loss/updates": 90, "loss/skipped": 10}, {"loss/updates": 91, "loss/skipped": 9}),
    "no_signal": ({"loss/updates": 0, "loss/grad_norm": 0.0}, {}),
}
"""For each sign what differs from a healthy step, and the twin."""


def records(different: dict[str, float], count: int = WINDOW) -> list[dict[str, Any]]:
    return [{**HEALTHY, **different, "step": step} for step in range(1, count + 1)]


def test_every_row_has_its_records_and_its_twin() -> None:
    assert SICK.keys() == SIGNS.keys()


@pytest.mark.parametrize("name", SICK)
def test_a_sign_holds_at_its_bound_and_not_below(name: str) -> None:
    sick, twin = SICK[name]
    [(found, text)] = found_signs(records(sick)).items()
    assert found == name
    assert text.startswith("steps 1 to 5: ")
    assert text.endswith(" ".join(SIGNS[name].remedy.split()))
    assert "{share}" not in text
    assert found_signs(records(twin)) == {}


def test_a_step_without_any_update_does_not_count_if_another_one_trained() -> None:
    mixed = [*records(SICK["no_signal"][0], WINDOW - 1), {**HEALTHY, "step": WINDOW}]
    assert found_signs(mixed) == {}
    # A gradient of zero is no update either: all advantages are zero.
    assert [*found_signs(records({"loss/updates": 2, "loss/grad_norm": 0.0}))] == ["no_signal"]


def test_records_without_the_metrics_have_no_sign() -> None:
    assert found_signs([{"kind": "train", "step": 1}]) == {}
    assert found_signs([{"kind": "eval", "step": 0}]) == {}


def watched(run: list[dict[str, Any]], watch: SignWatch) -> list[tuple[int, str]]:
    return [(record["step"], text.split(": ")[1][:4]) for record in run for text in watch.add(record)]


def test_the_terminal_hears_of_a_sign_when_it_begins_and_metrics_while_it_lasts() -> None:
    run = [*records({}, 8), *records(SICK["cut"][0], 12)]
    for step, record in enumerate(run, 1):
        record["step"] = step
    assert watched(run, SignWatch([])) == [(13, "95% ")]
    marked = [record["step"] for record in run if "sign/cut" in record]
    assert marked == [*range(13, 21)]
    [(held, text)] = sign_rows(run)
    assert (held, text[:12]) == ("held 8 times, first at step 13", "steps 16 to ")


def test_a_resumed_run_finds_the_signs_of_an_uninterrupted_one() -> None:
    whole, resumed = records(SICK["cut"][0], 9), records(SICK["cut"][0], 9)
    said = watched(whole, SignWatch([]))
    first = watched(resumed[:6], SignWatch([]))
    again = watched(resumed[6:], SignWatch(resumed[:6]))
    assert (first + again, resumed) == (said, whole)


def test_a_page_shows_the_log_of_the_terminal(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert not [panel for panel in run_page(read_run(tmp_path), {})["panels"] if panel.title == "Warnings"]
    said: list[str] = []
    watch = SignWatch([])
    with MetricsWriter(tmp_path / "metrics.jsonl") as metrics:
        for record in records(SICK["special_tokens"][0]):
            record["step"] += 6
            said += watch.add(record)
            metrics.write(record)
    first = run_page(read_run(tmp_path), {})["panels"][0]
    assert (first.title, first.rows) == ("Warnings", [("held 1 times, first at step 11", said[0])])
    drawn = [chart.id for panel in run_page(read_run(tmp_path), {})["panels"] for chart in panel.charts]
    assert "reward" in drawn
    assert not [name for name in drawn if name.startswith("sign/")]


END, TURN, WORD = 1, 2, 7


@pytest.mark.parametrize(
    ("ids", "given", "text", "counted"),
    [
        ([WORD, WORD, END], [], "def f(): pass", 0),
        ([WORD, END, TURN, WORD, END], [], "def f(): pass", 1),
        ([WORD, END, TURN, WORD, WORD, END], [(2, 4)], "def f(): pass", 0),
        ([WORD, TURN, WORD, END, TURN, WORD, END], [(4, 5)], "def f(): pass", 1),
        ([WORD, WORD], [], "def f(): pass<|im_end|>\n<|im_start|>user", 1),
        ([WORD, WORD], [], "x = [1][-1] if a <b| 1 else c|> 2", 0),
        ([WORD, WORD], [], "def f(): pass<|im_end|>\n", 0),
    ],
)
def test_special_tokens_count_before_the_end_of_a_turn(
    ids: list[int], given: list[tuple[int, int]], text: str, counted: int
) -> None:
    count = len(ids)
    sample = Sample(ids, [0.0] * count, [0] * count, "stop", text, given=given)
    group = Group("p", [1], [sample])
    assert batch_metrics([group], Batch([]), frozenset({END, TURN}))["sample/special_tokens"] == counted


def test_every_remedy_names_a_setting_or_a_command() -> None:
    for name, sign in SIGNS.items():
        assert re.search(r"`(whetstone \w+|\w+\.\w+)", sign.remedy), name
