"""``whetstone data import``: tables with other people's columns become problems by a map."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.beside import data_beside
from tests.data.command import whetstone_data
from tests.data.hub_server import serving
from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, CallTests, Problem, StdinTests
from whetstone.data.dataset import open_problems
from whetstone.data.sources.mapped import guess_map
from whetstone.data.sources.source import DatasetSource, SchemaError, import_rows
from whetstone.data.sources.table import mapped_source, source_named

DATA = data_beside(__file__)


def columns_of(words: str) -> dict[str, str]:
    return dict(word.split("=") for word in words.split(","))


def source_of(words: str) -> DatasetSource:
    return mapped_source({"name": "t", "map": {"statement": "s", **columns_of(words)}}, "t.yaml")


def cases_of(problem: Problem) -> Any:
    match problem.tests:
        case StdinTests(cases=cases):
            return [(case.input, case.output) for case in cases]
        case CallTests(cases=cases, function=function):
            return function, [(case.args, case.expected) for case in cases]
        case AssertTests(asserts=asserts):
            return asserts
        case _:
            raise AssertionError(problem.tests)


@pytest.mark.parametrize("form", DATA["forms"], ids=lambda form: form["name"])
def test_tests_in_common_forms_are_read(form: dict[str, str]) -> None:
    row = {"s": "Solve it.", **json.loads(form["row"])}
    (problem,) = import_rows(source_of(form["map"]), [("t.jsonl, row 1", row)])
    assert isinstance(problem, Problem), problem
    assert json.loads(json.dumps(cases_of(problem))) == json.loads(form["cases"])


def test_a_row_that_cannot_be_read_is_dropped_with_its_place_and_column() -> None:
    good = {"s": "Solve it.", "i": ["1"], "o": ["2"], "t": ["assert f(1) == 2"]}
    for drop in DATA["drops"]:
        row = {"s": "Solve it.", **json.loads(drop["row"])}
        placed = [("folder/t.jsonl, row 1", row), ("folder/t.jsonl, row 2", good)]
        decision = next(iter(import_rows(source_of(drop["map"]), placed)))
        assert not isinstance(decision, Problem)
        assert decision.reason == drop["reason"]
        assert decision.detail.startswith(f"t.jsonl, row 1: {drop['detail']}")


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["[", "assert f(1)"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abt"), inner, max_size=3),
    max_leaves=8,
)
COLUMN = st.sampled_from(["a", "b", "t", "a.b", "t.a"])


@given(
    row=st.dictionaries(st.sampled_from("abt"), ANY | ANY.map(json.dumps)),
    parts=st.dictionaries(
        st.sampled_from(["function", "starter", "reference", "passed", "id", "time_limit", "tags"]), COLUMN
    ),
    tests=COLUMN.map(lambda c: {"tests": c})
    | st.tuples(COLUMN, COLUMN).map(lambda c: {"inputs": c[0], "outputs": c[1]}),
    kind=st.none() | st.sampled_from(["stdin", "call", "assert", "pytest"]),
)
def test_any_row_becomes_a_problem_or_a_drop_with_a_reason(
    row: dict[str, Any], parts: dict[str, str], tests: dict[str, str], kind: str | None
) -> None:
    columns = {"statement": "s", **parts, **tests, **({"kind": kind} if kind else {})}
    source = mapped_source({"name": "t", "map": columns}, "t.yaml")
    # One odd row among others is only dropped.
    good = {"s": "Q", "a": "1", "b": "1", "t": "assert f(1) == 2"}
    placed = [("t, row 1", good), ("t, row 2", {"s": "Q", **row})]
    try:
        results = list(import_rows(source, placed))
    except SchemaError:
        return
    assert len(results) == 2
    guess_map([row])


def test_the_other_parts_of_a_problem_are_read_from_their_columns() -> None:
    chat = [{"role": "system", "content": "Code."}, {"role": "user", "content": "Print 1."}]
    row = {
        **{"s": chat, "i": "", "o": "1", "key": 7, "code": '["print(1)", "print(0 + 1)"]', "limit_ms": 9000},
        **{"memory_kb": "4194304", "level": "hard", "topics": "math, output"},
    }
    words = "inputs=i,outputs=o,id=key,reference=code,time_limit=limit_ms,memory_limit=memory_kb"
    source = source_of(f"{words},difficulty=level,tags=topics")
    (problem,) = import_rows(source, [("t.jsonl, row 1", row)])
    assert isinstance(problem, Problem)
    assert (problem.id, problem.statement) == ("t/7", "Print 1.")
    assert [program.source for program in problem.references] == ["print(1)", "print(0 + 1)"]
    assert (problem.limits.cpu_s, problem.limits.memory_mb) == (9.0, 4096.0)
    assert problem.meta == {"licence": "not stated", "difficulty": "hard", "tags": ["math", "output"]}


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        (datetime(2024, 3, 1), "2024-03-01T00:00:00"),
        (Decimal("1.5"), "1.5"),
        ({1: None}, {"1": None}),
        (float("nan"), None),
        (1500, 1500),
    ],
)
def test_a_fact_of_another_type_costs_no_problem(value: Any, fact: Any) -> None:
    row = {"s": "Solve it.", "in": ["1"], "out": ["2"], "d": value}
    (problem,) = import_rows(source_of("inputs=in,outputs=out,difficulty=d"), [("row 1", row)])
    assert isinstance(problem, Problem), problem
    assert problem.meta.get("difficulty") == fact


def test_after_an_import_without_problems_another_map_can_be_given(tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.jsonl", str(tmp_path / "set")
    rows.write_text(json.dumps({"s": "Solve it.", "in": ["1"], "out": ["2"], "other": None}))
    wrong, right = (f"statement=s,inputs=in,outputs={name}" for name in ("other", "out"))
    with pytest.raises(UserError, match="gave no problem"):
        whetstone_data("import", rows, "--map", wrong, "--out", out)
    assert not list(tmp_path.glob("set*"))
    assert whetstone_data("import", rows, "--map", right, "--out", out, "--validation", "0") == 0


def test_the_first_look_guesses_the_map_by_names_and_values() -> None:
    for guess in DATA["guesses"]:
        found = guess_map([json.loads(guess["row"])])
        assert ",".join(f"{part}={column}" for part, column in found.items()) == guess["map"]


def table(folder: Path, text: str = DATA["csv"], name: str = "questions.csv") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_a_first_look_shows_columns_a_map_problems_and_drops_by_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whetstone_data("import", table(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "limit_ms" in out
    guessed = "statement=question,inputs=in,outputs=out,reference=answer,id=nr,time_limit=limit_ms,tags=topic"
    assert f"guessed: --map {guessed}" in out
    assert "\nquestions/q1\n  Print the sum.\n  2 tests, 1 references: {" in out
    assert "the first 6 rows: 2 problems, 4 dropped" in out
    for reason in (
        "malformed_tests, such as questions.csv, row 3: `in` and `out`",
        "more_cells",
        "row 4: `in`",
    ):
        assert reason in out
    assert list(tmp_path.iterdir()) == [tmp_path / "questions.csv"]


def test_a_table_without_a_statement_and_tests_asks_for_a_map(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whetstone_data("import", table(tmp_path, "a,b\n1,2\n")) == 1
    assert "name them: --map statement=COLUMN,tests=COLUMN" in capsys.readouterr().out


def test_a_wrong_map_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    file = table(tmp_path)
    for error in DATA["errors"]:
        with pytest.raises(UserError, match=error["message"]):
            whetstone_data("import", file, "--map", error["map"])
    with pytest.raises(UserError, match=r"none\.csv: no such file"):
        whetstone_data("import", tmp_path / "none.csv")
    with pytest.raises(UserError, match="hub:ORG/NAME"):
        whetstone_data("import", "hub:name")


def test_csv_jsonl_and_parquet_give_the_same_problems_and_a_map_that_serves_all(tmp_path: Path) -> None:
    rows = [
        {"nr": "a", "q": "Print the sum.", "in": '["1 2", "3 4"]', "out": '["3", "7"]'},
        {"nr": "b", "q": "Print it twice.", "in": '["x"]', "out": '["xx"]'},
    ]
    first = table(
        tmp_path,
        "\ufeffnr;q;in;out\n"
        + "".join(
            ";".join('"' + value.replace('"', '""') + '"' for value in row.values()) + "\n" for row in rows
        ),
        "rows.csv",
    )
    second = table(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "rows.jsonl")
    third = tmp_path / "rows.parquet"
    unpacked = [{**row, "in": json.loads(row["in"]), "out": json.loads(row["out"])} for row in rows]
    pq.write_table(pa.Table.from_pylist(unpacked), third)
    words = "statement=q,inputs=in,outputs=out,id=nr"
    written = ("--validation", "0", "--out")
    assert whetstone_data("import", first, "--map", words, *written, tmp_path / "csv") == 0
    expected = list(open_problems(str(tmp_path / "csv")))
    assert [(p.id, cases_of(p)) for p in expected] == [
        ("rows/a", [("1 2", "3"), ("3 4", "7")]),
        ("rows/b", [("x", "xx")]),
    ]
    for file in (second, third):
        out = tmp_path / file.suffix[1:]
        by = tmp_path / "csv.map.yaml"
        assert whetstone_data("import", file, "--map", by, *written, out) == 0
        assert list(open_problems(str(out))) == expected


def test_a_map_file_is_a_source_of_prepare_and_of_pipelines(tmp_path: Path) -> None:
    words = "statement=question,inputs=in,outputs=out,id=nr"
    arguments = ("--map", words, "--name", "mine", "--out", tmp_path / "first")
    assert whetstone_data("import", table(tmp_path), *arguments) == 0
    by = tmp_path / "first.map.yaml"
    source = source_named(str(by))
    assert (source.name, source.path) == ("mine", str(tmp_path / "questions.csv"))
    assert whetstone_data("prepare", by, "--out", tmp_path / "prepared") == 0
    assert {p.id for p in open_problems(str(tmp_path / "prepared"))} == {"mine/q1", "mine/q2"}
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(yaml.safe_dump({"name": "p", "prepare": {"sources": {str(by): {}}}}))
    built = tmp_path / "built"
    assert whetstone_data("build", pipeline, "--out", built) == 0
    assert {p.id for p in open_problems(str(built))} == {"mine/q1", "mine/q2"}
    # A changed map repeats the import.
    by.write_text(by.read_text().replace("  id: nr\n", ""))
    assert whetstone_data("build", pipeline, "--out", built, "--replace") == 0
    assert not {p.id for p in open_problems(str(built))} & {"mine/q1", "mine/q2"}
    by.write_text(by.read_text().replace("statement:", "statment:"))
    with pytest.raises(UserError, match=r"first\.map\.yaml: .*did you mean `statement`"):
        source_named(str(by))
    (tmp_path / "questions.csv").unlink()
    by.write_text(by.read_text().replace("statment:", "statement:"))
    with pytest.raises(UserError, match=r"questions\.csv: no such file or folder"):
        whetstone_data("build", pipeline, "--out", built, "--replace")


@pytest.mark.process
def test_a_dataset_of_the_hub_is_looked_at_and_imported(tmp_path: Path) -> None:
    row = {"question": "Print 1.", "inputs": [""], "outputs": ["1"], "id": "one"}
    files = {"README.md": b"# set", "data/train-0.jsonl": json.dumps(row).encode() + b"\n"}
    environment = os.environ | {"HF_HOME": str(tmp_path / "hf"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with serving(files) as server:
        command = ["import", "hub:me/set", "--out", tmp_path / "out", "--validation", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "whetstone", "data", *map(str, command)],
            env=environment | {"HF_ENDPOINT": server.url},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert "me/set at " in done.stdout
    assert [problem.id for problem in open_problems(str(tmp_path / "out"))] == ["set/one"]
    written = yaml.safe_load((tmp_path / "out.map.yaml").read_text())
    assert (written["hub_id"], written["files"]) == ("me/set", {"train": "*train*"})
