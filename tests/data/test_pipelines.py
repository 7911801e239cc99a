"""``whetstone data build``: files say whole pipelines, and each step is the command of its name.

The files that ship are run on rows in their sources' exact schemas, without a network.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from tests.data.command import whetstone_data
from whetstone.cli import data_validate
from whetstone.core.errors import UserError
from whetstone.core.problem import case_count
from whetstone.data.card import PipelineRecord, read_card
from whetstone.data.dataset import open_problems
from whetstone.data.pipeline import load_pipeline
from whetstone.data.sources.table import source_named

FIXTURES = Path(__file__).parent / "fixtures"
RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "data"
SHIPPED = sorted(file.stem for file in RECIPES.glob("*.yaml"))
KEPT = {
    "archer": 3,
    "astraflow": 2,
    "astraflow-verifiable": 2,
    "code-r1-12k": 6,
    "code-r1-leetcode": 2,
    "deepcoder": 6,
    "scalebox": 1,
}
"""Of the fixtures' rows: what is problem, and what the file's steps keep."""


def build(*argv: str | Path) -> int:
    return whetstone_data("build", *argv)


def pipeline_of(out: Path) -> PipelineRecord:
    card = read_card(out)
    assert card is not None
    assert card.pipeline is not None
    return card.pipeline


def written(folder: Path, **fields: Any) -> Path:
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump({"name": "mine", **fields}, sort_keys=False))
    return file


def small(folder: Path, *steps: dict[str, Any], **fields: Any) -> Path:
    """A pipeline that begins with nine of the shipped problems."""
    draw = {"select": {"max_problems": 9, "kinds": ["call"], "min_tests": 5}}
    return written(folder, start="builtin:train", steps=[draw, *steps], **fields)


def rows_of(source: str, folder: Path) -> Path:
    """The fixture's rows; of PrimeIntellect's the first has the five tests that ScaleBox asks for."""
    lines = (FIXTURES / f"{source}.jsonl").read_text().splitlines()
    if source == "primeintellect":
        row = json.loads(lines[0])
        info = row["verification_info"]
        tests = ast.literal_eval(info)
        case = tests["test_cases"][0]
        tests["test_cases"] += [{**case, "input": f"{case['input']}{' ' * n}"} for n in (1, 2, 3)]
        lines[0] = json.dumps({**row, "verification_info": repr(tests)})
    file = folder / f"{source}.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_every_shipped_file_is_listed_here() -> None:
    assert sorted([*KEPT, "builtin", "micro"]) == SHIPPED


def test_shipped_files_name_revisions_that_the_importers_are_known_to_work_with() -> None:
    for name in SHIPPED:
        pipeline = load_pipeline(RECIPES / f"{name}.yaml")
        assert pipeline.name == name
        for source, at in pipeline.prepare.sources.items() if pipeline.prepare else ():
            assert at.revision == source_named(source).revision
            assert at.path is None


@pytest.mark.process
@pytest.mark.parametrize("name", KEPT)
def test_a_shipped_file_runs_on_rows_of_its_source(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = RECIPES / f"{name}.yaml"
    pipeline = load_pipeline(file)
    assert pipeline.prepare is not None
    paths = [f"prepare.sources.{s}.path={rows_of(s, tmp_path)}" for s in pipeline.prepare.sources]
    out = tmp_path / "out"
    assert build(file, *paths, "--out", out) == 0
    assert len(list(open_problems(out))) == KEPT[name]
    record = pipeline_of(out)
    assert [step.step for step in record.steps] == pipeline.labels()
    assert [said.count for said in record.published] == [said.count for said in pipeline.published]
    printed = " ".join(capsys.readouterr().out.split())
    for said in pipeline.published:
        assert f"{said.count:,} (" in printed
    assert ("Pipeline: " + name) in (out / "card.html").read_text()
    if pipeline.export_format:
        rows = pq.read_table(f"{out}.{pipeline.export_format.name}/train.parquet").num_rows
        rows += pq.read_table(f"{out}.{pipeline.export_format.name}/validation.parquet").num_rows
        assert rows == KEPT[name]


@pytest.mark.process
def test_a_pipeline_on_the_shipped_problems_from_start_to_export(tmp_path: Path) -> None:
    """The steps of the file that ships, on nine of its problems."""
    shipped = yaml.safe_load((RECIPES / "builtin.yaml").read_text())
    export_format = {"name": "verl", "skip": True}
    published = [{"after": "validate", "count": 7, "where": "nowhere"}]
    file = small(tmp_path, *shipped["steps"], export_format=export_format, published=published)
    out = tmp_path / "out"
    assert build(file, "steps.4.validate.mutants=1", "--out", out, "--workers", "1") == 0
    record = pipeline_of(out)
    names = ["select", "dedupe", "select-2", "decontaminate", "validate", "select-3"]
    assert [step.step for step in record.steps] == names
    assert record.steps[0].read == len(list(open_problems("builtin:train")))
    for before, after in zip(record.steps, record.steps[1:], strict=False):
        assert after.read == before.kept
    for step in record.steps:
        drops = sum(number for why, number in step.reasons.items() if why.startswith("drop "))
        assert step.read - drops == step.kept
    problems = list(open_problems(out))
    assert len(problems) == record.steps[-1].kept > 0
    assert [len(p.statement) for p in problems] == sorted(len(p.statement) for p in problems)
    assert all(5 <= case_count(problem) <= 16 for problem in problems)
    assert Path(f"{out}.verl/train.parquet").is_file()
    assert str(tmp_path) not in (out / "card.json").read_text()


def test_finished_steps_are_not_repeated_and_a_change_begins_at_its_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = small(tmp_path, {"dedupe": {}}, {"select": {"max_tests": 8}}), tmp_path / "out"
    build(file, "--out", out)
    first = pipeline_of(out)
    capsys.readouterr()
    build(file, "--out", out, "--replace")
    said = capsys.readouterr().out
    assert [f"{n}. {name}: exists already" in said for n, name in ((1, "select"), (2, "dedupe"))] == [
        True
    ] * 2
    assert "3. select-2: exists already" in said
    assert pipeline_of(out) == first
    build(file, "steps.2.select.max_tests=3", "--out", out, "--replace")
    said = capsys.readouterr().out
    assert "2. dedupe: exists already" in said
    assert "3. select-2: exists already" not in said
    assert {case_count(problem) for problem in open_problems(out)} == {3}


def test_another_file_behind_a_source_is_read_again(tmp_path: Path) -> None:
    rows, out = tmp_path / "archer.jsonl", tmp_path / "out"
    rows.write_text((FIXTURES / "archer.jsonl").read_text())
    file = written(tmp_path, prepare={"sources": {"archer": {"path": str(rows)}}, "validation": 0})
    build(file, "--out", out)
    assert pipeline_of(out).steps[0].read == 4
    rows.write_text(rows.read_text().splitlines()[0] + "\n")
    build(file, "--out", out, "--replace")
    assert pipeline_of(out).steps[0].read == 1


@pytest.mark.process
def test_a_step_that_fails_leaves_those_before_it_to_go_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = small(tmp_path, {"validate": {"mutants": 0}}), tmp_path / "out"

    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(data_validate, "validate_set", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(file, "--out", out, "--workers", "1")
    assert not out.exists()
    capsys.readouterr()
    build(file, "--out", out, "--workers", "1")
    said = capsys.readouterr().out
    assert "1. select: exists already" in said
    assert "2. validate: exists already" not in said
    assert len(list(open_problems(out))) == 9


def starting(**step: Any) -> dict[str, Any]:
    return {"start": "a.jsonl", "steps": [step]}


PREPARED = {"sources": {"archer": {}}}
PUBLISHED = [{"after": "dedup", "count": 1, "where": "x"}]
# The fields of a file, and words of the error.
INVALID: list[tuple[dict[str, Any], list[str]]] = [
    ({"strat": "x"}, ["unknown key `strat`", "did you mean `start`?"]),
    ({"start": "a.jsonl"}, ["`steps` is empty"]),
    ({}, ["`prepare`", "`start`"]),
    (starting(dedup={}), ["`steps.0`", "did you mean `dedupe`?"]),
    (starting(dedupe={}, select={}), ["`steps.0`", "one step"]),
    (starting(dedupe={}, selct={}), ["`steps.0`", "did you mean `select`?"]),
    ({"start": "a.jsonl", "steps": ["dedupe"]}, ["`steps.0`", "one step"]),
    (
        starting(select={"max_test": 3}),
        ["`steps.0.select.max_test`", "did you mean `steps.0.select.max_tests`?"],
    ),
    (starting(select={"kinds": ["cal"]}), ["steps.0.select", "`call`"]),
    (starting(dedupe={"near": 1.5}), ["`steps.0.dedupe.near`", "1"]),
    (starting(decontaminate={}), ["`steps.0.decontaminate.against`"]),
    (starting(difficulty={"n": 4}), ["`steps.0.difficulty`", "`model`"]),
    (starting(validate={"drop": ["few_test"]}), ["steps.0.validate.drop", "did you mean `few_tests`?"]),
    ({"prepare": {"sources": {"archr": {}}}}, ["prepare.sources.archr", "did you mean `archer`?"]),
    ({"prepare": PREPARED, "export_format": {"name": "verll"}}, ["`export_format.name`", "`verl`?"]),
    (starting(dedupe=None) | {"published": PUBLISHED}, ["no step `dedup`", "did you mean `dedupe`?"]),
]


def test_an_invalid_field_is_refused_by_its_path(tmp_path: Path) -> None:
    for fields, words in INVALID:
        with pytest.raises(UserError) as refusal:
            build(written(tmp_path, **fields), "--out", tmp_path / "out")
        for word in [*words, "pipeline.yaml"]:
            assert word in str(refusal.value)


def test_the_example_of_the_docs_is_a_pipeline(tmp_path: Path) -> None:
    page = (RECIPES.parents[1] / "docs" / "data.md").read_text().partition("## Pipelines as files")[2]
    file = tmp_path / "mine.yaml"
    file.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    assert load_pipeline(file).labels() == [
        "prepare", "validate", "strengthen", "dedupe", "decontaminate", "difficulty", "select"
    ]  # fmt: skip


def test_everything_that_is_missing_is_named_before_anything_is_begun(tmp_path: Path) -> None:
    fields = {
        "prepare": {"sources": {"verl": {}, "archer": {"path": "nowhere.json"}}},
        "steps": [{"decontaminate": {"against": {"humaneval": "gone.jsonl", "mine": "lost.parquet"}}}],
    }
    with pytest.raises(UserError) as refusal:
        build(written(tmp_path, **fields), "--out", tmp_path / "out")
    lines = str(refusal.value).splitlines()
    assert len(lines) == 5
    assert "give its files, prepare.sources.verl.path=PATH" in lines[1]
    for word, line in zip(("nowhere.json", "gone.jsonl", "lost.parquet"), lines[2:], strict=True):
        assert word in line
    assert [file.name for file in tmp_path.iterdir()] == ["pipeline.yaml"]


def test_an_output_that_is_there_is_kept_unless_asked(tmp_path: Path) -> None:
    file, out = small(tmp_path, {"select": {"max_tests": 4}}), tmp_path / "out"
    build(file, "--out", out)
    before = (out / "train.parquet").read_bytes()
    with pytest.raises(UserError, match="--replace"):
        build(file, "steps.1.select.max_tests=2", "--out", out)
    assert (out / "train.parquet").read_bytes() == before


def test_a_pipeline_never_replaces_its_input(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(small(tmp_path), "--out", out)
    with pytest.raises(UserError, match="would overwrite"):
        build(written(tmp_path, start=str(out), steps=[{"dedupe": {}}]), "--out", out, "--replace")


def test_a_step_that_keeps_nothing_says_why(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"select-2: kept no problem \(drop too_few_tests: 9\)"):
        build(small(tmp_path, {"select": {"min_tests": 10000}}), "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_override_of_a_missing_item_is_refused(tmp_path: Path) -> None:
    for override in ("steps.9.select.seed=1", "steps.x.select.seed=1"):
        with pytest.raises(UserError, match="is no item of a list of 1"):
            build(small(tmp_path), override, "--out", tmp_path / "out")
