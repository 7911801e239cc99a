"""A rating from standings in a file: the published rule, and what it must not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.cli.main import main
from whetstone_graders.codeforces import (
    Contest,
    codeforces_rating,
    expected_place,
    rating_of_place,
    read_ratings,
    read_standings,
)

COUNT = 400


def contest(number: int = 2024, *, rated: int = COUNT, points: bool = True) -> dict[str, Any]:
    """Participant i of many has rating 3000 - 5 i and as many points as that takes."""
    problems = [
        {"contestId": number, "index": index, "name": index, **({"points": 500.0 * n} if points else {})}
        for n, index in enumerate("ABCD", 1)
    ]
    rows = [
        {
            "party": {"members": [{"handle": f"u{i}"}]},
            "points": (5000.0 - 10 * i) if points else float(4 - i // 100),
            "penalty": i % 100,
            "rank": i + 1,
        }
        for i in range(rated)
    ]
    return {
        "standings": {"contest": {"id": number, "name": "Round"}, "problems": problems, "rows": rows},
        "ratings": [{"handle": f"u{i}", "oldRating": 3000 - 5 * i, "newRating": 0} for i in range(rated)],
        "ids": {f"{number}{index}": f"cf/{index}" for index in "ABCD"},
    }


def parsed(**options: Any) -> Contest:
    return msgspec.convert(contest(**options), Contest)


def rating(tried: dict[str, list[bool]], **options: Any) -> int | None:
    return codeforces_rating(tried, [parsed(**options)]).contests[0].rating


@given(st.lists(st.integers(0, 3500), min_size=1, max_size=300), st.integers(0, 300))
def test_the_rating_inverts_the_expected_place(participants: list[int], place: int) -> None:
    found = rating_of_place(place, participants)
    top = max(participants) + 100
    assert 0 <= found < top
    if found > 0:
        assert expected_place(found, participants) >= place
    if found < top - 1:
        assert expected_place(found + 1, participants) < place


SUBMISSIONS = st.dictionaries(
    st.sampled_from(["cf/A", "cf/B", "cf/C", "cf/D"]),
    st.lists(st.booleans(), min_size=1, max_size=5),
    min_size=1,
)


@given(SUBMISSIONS, st.booleans())
def test_solving_more_or_earlier_never_lowers_the_rating(tried: dict[str, list[bool]], points: bool) -> None:
    before = rating(tried, points=points)
    assert before is not None
    for name, replies in tried.items():
        better = rating({**tried, name: [True, *replies]}, points=points)
        assert better is not None
        assert better >= before


def test_a_failed_submission_has_the_penalty_of_its_contest() -> None:
    clean, second = rating({"cf/D": [True]}), rating({"cf/D": [False, True]})
    assert clean is not None
    assert second is not None
    # 50 points are five places here, and five places are 25 points of rating apart.
    assert 15 <= clean - second <= 35
    assert rating({"cf/A": [True]}, points=False) == rating({"cf/D": [True, False]}, points=False)
    slower = rating({"cf/A": [False, False, False, True]}, points=False)
    assert slower is not None
    assert slower < (rating({"cf/A": [True]}, points=False) or 0)


def test_who_has_a_participants_points_has_about_his_rating() -> None:
    """2000 points are those of participant 300 of 400, whose rating is 1500."""
    found = codeforces_rating({"cf/D": [True]}, [parsed()])
    assert found.contests[0].place == 301
    assert found.rating == pytest.approx(1500, abs=60)
    assert found.percentile == pytest.approx(25, abs=6)
    everybody = codeforces_rating({"cf/D": [True]}, [parsed()], ratings=[1000.0, 1100.0, 1200.0, 4000.0])
    assert everybody.percentile == 75.0


def test_contests_that_cannot_be_used_are_named() -> None:
    found = codeforces_rating({"cf/D": [True]}, [parsed(rated=200), parsed(number=7)])
    assert [one.rating is None for one in found.contests] == [True, False]
    assert "fewer than 201" in found.contests[0].reason
    none = codeforces_rating({"other": [True]}, [parsed()])
    assert (none.rating, none.percentile) == (None, None)
    assert "none of its problems" in none.contests[0].reason


def test_the_command_reads_an_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judgement = {"verdict": "accepted", "cases": [{"verdict": "accepted"}], "score": 1.0, "isolation": "root"}
    sample = {"problem_id": "cf/D", "index": 0, "text": "", "program": "", "judgement": judgement}
    (tmp_path / "samples.jsonl").write_text(
        json.dumps({**sample, "finish_reason": "stop", "tokens": 1}) + "\n"
    )
    standings = tmp_path / "standings.jsonl"
    standings.write_text(json.dumps(contest()) + "\n")
    assert main(["eval", "rating", str(tmp_path), "--standings", str(standings)]) == 0
    assert "1 of 1 contests" in capsys.readouterr().out
    standings.write_text(json.dumps({**contest(), "ids": {}}) + "\n")
    assert main(["eval", "rating", str(tmp_path), "--standings", str(standings)]) == 1
    standings.write_text(json.dumps(contest()) + '\n{"standings": 3}\n')
    assert main(["eval", "rating", str(tmp_path), "--standings", str(standings)]) == 2
    assert "line 2" in capsys.readouterr().err


def test_ratings_are_a_list_or_counted(tmp_path: Path) -> None:
    file = tmp_path / "ratings.json"
    file.write_text("[1500, 1200.5]")
    assert read_ratings(file) == [1200.5, 1500.0]
    file.write_text('{"1500": 2, "900": 1}')
    assert read_ratings(file) == [900.0, 1500.0, 1500.0]
    file.write_text('"no"')
    with pytest.raises(Exception, match="no ratings"):
        read_ratings(file)
    (tmp_path / "empty").write_text("")
    with pytest.raises(Exception, match="no contest"):
        read_standings(tmp_path / "empty")
