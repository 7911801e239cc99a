"""``whetstone data dedupe``, ``decontaminate``, ``select`` and ``convert --export-format`` on real files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.data.command import whetstone_data
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.data.dataset import DatasetWriter, load_problems, open_problems
from whetstone.data.decisions import read_decisions
from whetstone.data.files import write_problems

SHARED = Path(os.environ.get("WHETSTONE_SHARED", Path(__file__).parents[3] / "shared")) / "data"
HUMANEVAL = SHARED / "humaneval" / "HumanEval.jsonl.gz"
needs_shared = pytest.mark.skipif(not HUMANEVAL.exists(), reason=f"no benchmark files in {SHARED}")


def task(id: str, statement: str) -> Problem:
    tests = StdinTests([StdinCase(f"{len(statement)} {n}", str(n)) for n in range(3)])
    return Problem(id, statement, tests, source=id.partition("/")[0])


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two splits; the validation split holds a copy of a training problem."""
    folder = tmp_path / "set"
    with DatasetWriter(folder) as writer:
        writer.add(task("a/1", "Read n numbers and print the largest of them."))
        writer.add(task("a/2", "Read a word and print it in reverse order."))
        writer.add(task("b/1", "Read n numbers and print the largest of them."), "validation")
        writer.add(task("b/2", "Print the n-th Fibonacci number, modulo a prime."), "validation")
    return folder


def test_dedupe_finds_copies_across_splits_and_keeps_problems_in_theirs(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert whetstone_data("dedupe", str(dataset), "--out", str(out)) == 0
    assert [p.id for p in open_problems(f"{out}:train")] == ["a/1", "a/2"]
    assert [p.id for p in open_problems(f"{out}:validation")] == ["b/2"]
    said = capsys.readouterr().out
    assert "3 of 4 problems; 1 dropped" in said
    assert "drop same_statement: 1" in said


def test_steps_follow_one_another_and_their_decisions_add_up(dataset: Path, tmp_path: Path) -> None:
    write_problems(
        tmp_path / "bench.jsonl", [task("x/1", "Print the n-th Fibonacci number, modulo a prime.")]
    )
    deduped, clean, chosen = (str(tmp_path / name) for name in ("deduped", "clean", "chosen"))
    whetstone_data("dedupe", str(dataset), "--out", deduped)
    report = tmp_path / "report.json"
    against = ("--against", f"mine={tmp_path / 'bench.jsonl'}")
    whetstone_data("decontaminate", deduped, "--out", clean, *against, "--report", str(report))
    whetstone_data("select", clean, "--out", chosen, "--max-tests", "2", "--order", "length")
    assert [p.id for p in open_problems(chosen)] == ["a/2", "a/1"]
    assert [(d.problem_id, d.step, d.reason) for d in read_decisions(Path(chosen) / "decisions.jsonl")] == [
        ("b/1", "dedupe", "same_statement"),
        ("b/2", "decontaminate", "contaminated"),
        ("a/1", "select", "tests_cut"),
        ("a/2", "select", "tests_cut"),
    ]
    found = json.loads(report.read_text())
    assert found["benchmarks"] == {"mine": 1}
    assert [match["problem_id"] for match in found["contaminated"]] == ["b/2"]


@needs_shared
def test_a_set_contaminated_with_humaneval_loses_just_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from whetstone.evaluate.benchmarks import load_benchmark

    taken = load_benchmark("humaneval", str(HUMANEVAL)).problems[::20]
    docstrings = [p.statement.split('"""')[1].split(">>>")[0] for p in taken if '"""' in p.statement]
    hidden = [
        task(f"web/{n}", f"Task {n}. {text} Read the arguments from standard input and print the result.")
        for n, text in enumerate(docstrings)
    ]
    clean = load_problems("builtin:heldout")
    write_problems(tmp_path / "all.jsonl", [*clean, *hidden])
    against = ("--against", f"humaneval={HUMANEVAL}")
    whetstone_data("decontaminate", str(tmp_path / "all.jsonl"), "--out", str(tmp_path / "out"), *against)
    dropped = [d for d in read_decisions(tmp_path / "out" / "decisions.jsonl") if d.action == "drop"]
    assert len(hidden) >= 7
    assert [d.problem_id for d in dropped] == [problem.id for problem in hidden]
    assert all(d.reason == "contaminated" and d.detail.startswith("humaneval/") for d in dropped)
    assert "compared with humaneval (164)" in capsys.readouterr().out


def test_convert_writes_export_formats_and_reports_problems_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "verl.parquet"
    with pytest.raises(UserError, match="cannot carry"):
        whetstone_data("convert", "builtin:heldout", str(target), "--export-format", "verl")
    assert whetstone_data("convert", "builtin:heldout", str(target), "--export-format", "verl", "--skip") == 0
    rows = pq.read_table(target).num_rows
    said = capsys.readouterr().out
    assert f"{rows} rows" in said
    assert f"left out: {len(load_problems('builtin:heldout')) - rows} (assert tests)" in said
    with pytest.raises(UserError, match="add --export-format"):
        whetstone_data("convert", "builtin:heldout", str(target), "--skip")


def test_show_reads_a_dataset_and_one_split_of_it(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whetstone_data("show", str(dataset))
    assert "4 problems, 12 tests" in capsys.readouterr().out
    whetstone_data("show", f"{dataset}:validation")
    said = capsys.readouterr().out
    assert "b/2" in said
    assert "a/1" not in said
    assert "2 problems, 6 tests" in said


def test_bad_input_is_refused_before_anything_is_written(dataset: Path, tmp_path: Path) -> None:
    out = ("--out", "OUT")
    places = {"SET": str(dataset), "OUT": str(tmp_path / "out")}
    for argv, words in (
        (("dedupe", "SET", "--out", "SET"), "which is read; name another output"),
        (("dedupe", "SET", *out, "--near", "0"), "--near"),
        (("decontaminate", "SET", *out, "--against", "humanevil"), "no problem set `humanevil`"),
        (("decontaminate", "SET", *out, "--against", "mine=absent.jsonl"), "absent.jsonl"),
        (("select", "SET", *out, "--kinds", "stdn"), "did you mean `stdin`"),
        (("convert", "SET", "OUT", "--export-format", "verl_whole"), "did you mean `verl-whole`"),
    ):
        with pytest.raises(UserError, match=words):
            whetstone_data(*(places.get(word, word) for word in argv))
        assert not (tmp_path / "out").exists()
