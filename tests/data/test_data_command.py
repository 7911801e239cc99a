"""``whetstone data``: every action on a real file, with its exit status and its words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.data.command import whetstone_data
from whetstone.core.errors import UserError
from whetstone.core.problem import CallCase, CallTests, Problem, Program
from whetstone.data.files import read_problems, write_problems

RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
FALSE = "def add(a, b):\n    return a + b + 1\n"


def add_problem(id: str, reference: str = RIGHT, wrong: str = WRONG) -> Problem:
    return Problem(
        id=id,
        statement="Write `add(a, b)` [bold]that[/bold] returns the sum.",
        tests=CallTests([CallCase(3, [1, 2]), CallCase(0, [0, 0])], function="add"),
        references=[Program("python", reference)],
        wrong=[Program("python", wrong)],
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "p.jsonl"
    write_problems(path, [add_problem("demo/one"), add_problem("demo/two")])
    return path


def test_schema_prints_a_json_schema_of_the_published_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert whetstone_data("show", "schema") == 0
    fields = json.loads(capsys.readouterr().out)["$defs"]["Problem"]["properties"]
    assert {"id", "statement", "tests", "limits", "references", "wrong"} <= set(fields)


def test_show_lists_ids_and_counts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whetstone_data("show", str(file)) == 0
    out = capsys.readouterr().out
    assert "demo/one" in out
    assert "demo/two" in out
    assert "2 problems, 4 tests" in " ".join(out.split())


def test_show_one_prints_all_of_it_as_it_is_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whetstone_data("show", str(file), "--id", "demo/two") == 0
    out = capsys.readouterr().out
    assert "[bold]that[/bold]" in out
    for part in ("add(1, 2)", "return a + b", "return a - b"):
        assert part in out
    assert "demo/one" not in out


def test_show_knows_every_kind_of_test(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, name in (
        ("call", "whetstone/arithmetic/triple"),
        ("stdin", "whetstone/patterns/pyramid"),
        ("assert", "whetstone/powers_roots/power"),
    ):
        assert whetstone_data("show", "builtin:train", "--id", name) == 0
        assert f"{kind} tests" in capsys.readouterr().out


def test_show_an_unknown_id_suggests_the_closest(file: Path) -> None:
    with pytest.raises(UserError, match="did you mean `demo/two`"):
        whetstone_data("show", str(file), "--id", "demo/twoo")


def test_convert_there_and_back_gives_the_same_bytes(file: Path, tmp_path: Path) -> None:
    for ending in ("parquet", "jsonl.gz"):
        assert whetstone_data("convert", str(file), str(tmp_path / f"q.{ending}")) == 0
        assert (
            whetstone_data("convert", str(tmp_path / f"q.{ending}"), str(tmp_path / "r.jsonl"), "--replace")
            == 0
        )
        assert (tmp_path / "r.jsonl").read_bytes() == file.read_bytes()
    assert whetstone_data("convert", "builtin:train", str(tmp_path / "t.parquet")) == 0
    assert any(p.id == "whetstone/arithmetic/triple" for p in read_problems(tmp_path / "t.parquet"))


@pytest.mark.process
def test_validate_prints_nothing_about_valid_problems(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("validate", str(file), "--workers", "1", "--mutants", "0", "--ignore", "few_tests")
    assert whetstone_data(*argv) == 0
    assert capsys.readouterr().out == "2 problems: 2 kept, 0 dropped, 0 not as intended\n"


@pytest.mark.process
def test_validate_names_a_failing_reference_and_a_passing_wrong_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.jsonl"
    weak = add_problem("demo/weak", wrong=RIGHT + "# wrong\n")
    write_problems(path, [add_problem("demo/good"), add_problem("demo/bad", reference=FALSE), weak])
    assert whetstone_data("validate", str(path), "--workers", "1", "--mutants", "0") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("demo/bad: reference_fails: references[0]: wrong_answer, cases 1, 2: ")
    assert lines[1] == "demo/weak: wrong_program_passes: wrong[0] passes every test; add a test that it fails"
    assert "3 problems: 2 kept, 1 dropped, 2 not as intended" in " ".join(lines[2:])


@pytest.mark.process
def test_validate_writes_the_kept_problems_and_no_other_file(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "clean" / "kept.jsonl"
    argv = ("validate", str(file), "--out", str(out), "--workers", "1", "--mutants", "0")
    assert whetstone_data(*argv, "--drop", "few_tests") == 1, "nothing was kept"
    assert list(read_problems(out)) == []
    assert whetstone_data(*argv, "--replace") == 0
    kept = list(read_problems(out))
    assert [problem.id for problem in kept] == ["demo/one", "demo/two"]
    assert kept[0].meta["validation"]["flags"] == {"few_tests": "2; the policy asks for 5"}
    assert sorted(path.name for path in out.parent.iterdir()) == ["kept.decisions.jsonl", "kept.jsonl"]


@pytest.mark.process
def test_validate_prints_its_findings_and_fails_only_if_a_kept_problem_is_not_as_intended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "p.jsonl", tmp_path / "clean"
    write_problems(path, [add_problem("demo/good"), add_problem("demo/bad", reference=FALSE)])
    argv = ("validate", str(path), "--out", str(out), "--replace", "--workers", "1", "--mutants", "0")
    for options, status in (((), 0), (("--mark", "reference_fails"), 1), ((), 0)):
        assert whetstone_data(*argv, *options) == status
        assert capsys.readouterr().out.startswith("demo/bad: reference_fails: references[0]: wrong_answer")
    for name in (str(out), f"{out}:train"):
        with pytest.raises(
            UserError, match="'demo/bad' was dropped by validate, because of reference_fails: "
        ):
            whetstone_data("show", name, "--id", "demo/bad")
    with pytest.raises(UserError, match=r"no problem 'demo/other'"):
        whetstone_data("show", str(out), "--id", "demo/other")
    with pytest.raises(UserError, match="the split is empty; name the other split"):
        whetstone_data("show", f"{out}:validation")


def test_prepare_announces_an_empty_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "apps.jsonl"
    tests = json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]})
    row = {"problem_id": 1, "question": "Print n plus 1.", "solutions": "[]", "input_output": tests}
    rows.write_text(json.dumps(row | {"difficulty": "interview", "url": "", "starter_code": ""}) + "\n")
    assert whetstone_data("prepare", f"apps={rows}", "--validation", "0", "--out", str(tmp_path / "set")) == 0
    assert "warning: the split validation is empty with --validation 0" in capsys.readouterr().out


def test_validate_refuses_invalid_options(file: Path) -> None:
    for argv, words in (
        (("--drop", "few_test"), "--drop: unknown reason `few_test`; did you mean `few_tests`"),
        (("--drop", "flaky", "--mark", "flaky"), "mark flaky: drop has it too"),
        (("--repeats", "0"), "--repeats: "),
        (("--fewest-tests", "0"), "--fewest-tests: "),
        (("--workers", "-1"), "--workers is -1: "),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            whetstone_data("validate", str(file), *argv)
