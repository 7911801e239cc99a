"""Problem files: what is written comes back equal, and what is malformed is named by place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Compare,
    InteractiveCase,
    InteractiveTests,
    Limits,
    Problem,
    Program,
    ProgramInteractor,
    PythonChecker,
    PythonInteractor,
    StdinCase,
    StdinTests,
)
from whetstone.data.files import read_problems, write_problems

ENDINGS = ("jsonl", "jsonl.gz", "parquet")

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
programs = st.builds(Program, st.sampled_from(["python", "cpp"]), text)
stdin_tests = st.builds(StdinTests, st.lists(st.builds(StdinCase, text, text), min_size=1, max_size=3))
call_tests = st.builds(
    CallTests,
    st.lists(
        st.builds(CallCase, values, st.lists(values, max_size=3), st.dictionaries(names, values, max_size=2)),
        min_size=1,
        max_size=3,
    ),
    names,
    st.none() | names,
)


def _design_case(calls: list[tuple[Any, ...]]) -> CallCase:
    others = calls[1:]
    operations = ["Thing", *[name for name, _, _ in others]]
    return CallCase(
        [None, *[value for _, _, value in others]], [args for _, args, _ in calls], {}, operations
    )


design_tests = st.builds(
    CallTests,
    st.lists(
        st.lists(st.tuples(names, st.lists(values, max_size=2), values), min_size=1, max_size=3).map(
            _design_case
        ),
        min_size=1,
        max_size=2,
    ),
    class_=st.just("Thing"),
)
interactive_tests = st.builds(
    InteractiveTests,
    st.lists(st.builds(InteractiveCase, text, text), min_size=1, max_size=3),
    st.builds(PythonInteractor, text.filter(bool))
    | st.builds(ProgramInteractor, st.just("cpp"), text.filter(bool), st.sampled_from(["testlib", "kattis"])),
)
assert_tests = st.builds(
    AssertTests,
    setup=text,
    asserts=st.lists(text, min_size=1, max_size=3),
    entry_point=st.none() | names,
)


@st.composite
def problems_with(draw: st.DrawFn, **fields: st.SearchStrategy[Any]) -> Problem:
    given = {name: draw(strategy) for name, strategy in fields.items()}
    modes = ["tokens", "exact", "floats"] if isinstance(given["tests"], StdinTests) else ["tokens"]
    return Problem(**given, compare=Compare(mode=draw(st.sampled_from(modes))))


problems = problems_with(
    id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    statement=text,
    tests=st.one_of(stdin_tests, call_tests, design_tests, assert_tests, interactive_tests),
    language=st.sampled_from(["python", "cpp"]),
    starter=st.none() | text,
    limits=st.builds(Limits, cpu_s=st.floats(0.1, 60)),
    references=st.lists(programs, max_size=2),
    wrong=st.lists(programs, max_size=2),
    source=text,
    meta=st.dictionaries(text, values, max_size=3),
    environment=st.sampled_from([msgspec.UNSET, "default", "py312"]),
)


def plain(id: str = "demo/add") -> dict[str, Any]:
    cases = [{"args": [1, 2], "expected": 3}]
    return {"id": id, "statement": "Add.", "tests": {"kind": "call", "function": "add", "cases": cases}}


def make(id: str = "demo/add", **fields: Any) -> Problem:
    tests = fields.pop("tests", None) or StdinTests([StdinCase("1\n", "1\n")])
    return Problem(id=id, statement="s", tests=tests, **fields)


def write_lines(path: Path, *lines: Any) -> Path:
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


def exact(problem: Problem) -> str:
    """A text that tells 1 from 1.0 and True, and -0.0 from 0.0, which == does not."""
    return repr(problem)


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=st.lists(problems, max_size=4, unique_by=lambda p: p.id))
def test_written_problems_are_read_back_exactly(ending: str, tmp_path: Path, written: list[Problem]) -> None:
    path = tmp_path / f"p.{ending}"
    assert write_problems(path, written) == len(written)
    assert [exact(p) for p in read_problems(path)] == [exact(p) for p in written]
    assert [f.name for f in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_checker_survives(ending: str, tmp_path: Path) -> None:
    problem = make(checker=PythonChecker("def check(input, output, expected):\n    return True\n"))
    write_problems(tmp_path / f"p.{ending}", [problem])
    assert list(read_problems(tmp_path / f"p.{ending}")) == [problem]


def test_parquet_spans_several_row_groups_in_order(tmp_path: Path) -> None:
    written = [make(f"p/{i}") for i in range(1200)]
    write_problems(tmp_path / "p.parquet", iter(written))
    assert pq.ParquetFile(tmp_path / "p.parquet").num_row_groups > 1
    assert list(read_problems(tmp_path / "p.parquet")) == written


def test_parquet_columns_can_be_read_without_whetstone(tmp_path: Path) -> None:
    write_problems(tmp_path / "p.parquet", [make("a/b", starter="def f():\n")])
    row = pq.read_table(tmp_path / "p.parquet").to_pylist()[0]
    assert (row["id"], row["statement"], row["kind"], row["starter"]) == ("a/b", "s", "stdin", "def f():\n")
    assert json.loads(row["tests"])["cases"] == [{"input": "1\n", "output": "1\n"}]


def test_gzip_bytes_depend_on_the_problems_alone(tmp_path: Path) -> None:
    write_problems(tmp_path / "a.jsonl.gz", [make()])
    write_problems(tmp_path / "b.jsonl.gz", [make()])
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    write_problems(path, [make("old")])
    with pytest.raises(UserError, match="given twice"):
        write_problems(path, [make("new"), make("new")])
    assert [p.id for p in read_problems(path)] == ["old"]
    assert [f.name for f in tmp_path.iterdir()] == ["p.jsonl"]


def test_a_file_can_be_rewritten_from_itself(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    write_problems(path, [make("a"), make("b")])
    write_problems(path, (p for p in read_problems(path) if p.id == "b"))
    assert [p.id for p in read_problems(path)] == ["b"]


def test_a_value_that_json_would_change_is_refused(tmp_path: Path) -> None:
    for value, says in (
        (float("nan"), r"tests\.cases\[0\]\.expected` is nan"),
        ([float("-inf")], r"expected\[0\]` is -inf"),
        ({1, 2}, "is a set"),
        (b"x", "is a bytes"),
        ({1: 2}, "has the key 1"),
        ("\ud800", "surrogate"),
    ):
        problem = make(tests=CallTests([CallCase(value)], function="f"))
        for ending in ENDINGS:
            with pytest.raises(UserError, match=says):
                write_problems(tmp_path / f"p.{ending}", [problem])
            assert list(tmp_path.iterdir()) == []


TWO_CASES = [{"input": "", "output": ""}, {"inptu": "", "output": ""}]
# A change of a line, and the error.
MALFORMED_LINES: list[tuple[dict[str, Any], str]] = [
    ({"statment": "s"}, "unknown field `statment`; did you mean `statement`?"),
    ({"limits": {"cpu": 1}}, "unknown field `limits.cpu`; did you mean `cpu_s`?"),
    ({"limits": {"cpu_s": 0}}, "`limits.cpu_s`"),
    ({"wrong": [{"language": "python", "src": ""}]}, "unknown field `wrong[0].src`"),
    ({"tests": {"kind": "cal"}}, "not one of stdin, call, assert, interactive, none; did you mean `call`?"),
    ({"tests": {"kind": "stdin", "cases": []}}, "`tests.cases` is empty; a problem needs at least one test"),
    ({"tests": {"kind": "assert", "asserts": []}}, "needs exactly one of"),
    ({"tests": {"kind": "stdin", "cases": TWO_CASES}}, "`tests.cases[1].inptu`; did you mean `input`?"),
    ({"tests": {"kind": "call", "function": "a b", "cases": [{"expected": 1}]}}, "not a Python name"),
    ({"id": 3}, "`id`: Expected `str`, got `int`"),
    ({"id": ""}, "`id`"),
]


def test_a_malformed_line_is_named_with_its_field(tmp_path: Path) -> None:
    for change, says in MALFORMED_LINES:
        path = write_lines(tmp_path / "p.jsonl", plain("ok"), plain() | change)
        with pytest.raises(UserError) as error:
            list(read_problems(path))
        assert str(error.value).startswith(f"{path}, line 2: ")
        assert says in str(error.value)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    without = {k: v for k, v in plain().items() if k != "tests"}
    with pytest.raises(UserError, match="line 1: field `tests` is missing"):
        list(read_problems(write_lines(tmp_path / "p.jsonl", without)))


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    for line in ('{"id": ', "hello", json.dumps(plain("a")) + "{}", "NaN"):
        with pytest.raises(UserError, match=r"line 2: not JSON"):
            list(read_problems(write_lines(tmp_path / "p.jsonl", plain(), line)))


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(json.dumps(plain()).replace("Add", "\xff").encode("latin1"))
    with pytest.raises(UserError, match="line 1"):
        list(read_problems(tmp_path / "p.jsonl"))


def test_blank_lines_and_a_byte_order_mark_are_no_problems_and_count_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(plain("a")).encode() + b"\n\n  \n{\n")
    problems = read_problems(path)
    assert next(problems).id == "a"
    with pytest.raises(UserError, match="line 4"):
        next(problems)


def test_an_id_given_twice_names_both_places(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "p.jsonl", plain("a"), "", plain("b"), plain("a"))
    with pytest.raises(UserError, match=r"line 4: id 'a' was already given in line 1"):
        list(read_problems(lines))
    rows = [{"id": "a", "statement": "", "tests": json.dumps(plain()["tests"])}] * 2
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    with pytest.raises(UserError, match=r"row 2: id 'a' was already given in row 1"):
        list(read_problems(tmp_path / "p.parquet"))


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"tests": "{"}, "row 1: `tests` is not JSON"),
        ({"tests": '{"kind": "stdin", "cases": []}'}, r"row 1: `tests\.cases` is empty"),
        ({"kind": "stdin"}, r"row 1: `kind` is 'stdin', but `tests\.kind` is 'call'"),
        ({"statment": "x"}, "unknown column `statment`; did you mean `statement`?"),
        ({"id": 7}, "row 1: `id`"),
        ({"tests": 7}, "row 1: `tests` is a int"),
    ]
    for change, says in changes:
        row = {"id": "a", "statement": "", "tests": json.dumps(plain()["tests"])} | change
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / "p.parquet")
        with pytest.raises(UserError, match=says):
            list(read_problems(tmp_path / "p.parquet"))


def test_a_broken_file_is_an_error_not_a_short_set(tmp_path: Path) -> None:
    for ending in ("jsonl.gz", "parquet"):
        path = tmp_path / f"p.{ending}"
        write_problems(path, [make(f"p/{i}", source=str(i) * 50) for i in range(200)])
        path.write_bytes(path.read_bytes()[:-300])
        with pytest.raises(UserError, match="is the file complete"):
            list(read_problems(path))
    (tmp_path / "q.jsonl.gz").write_bytes(gzip.compress(b"")[:4])
    with pytest.raises(UserError, match="cannot be read"):
        list(read_problems(tmp_path / "q.jsonl.gz"))


def test_a_missing_file_a_folder_and_an_unknown_ending_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_problems(tmp_path / "none.jsonl")
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        read_problems(tmp_path / "d.jsonl")
    with pytest.raises(UserError, match=r"ends in \.jsonl"):
        write_problems(tmp_path / "p.json", [])
