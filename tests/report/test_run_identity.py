"""A run's page knows how the run was started, what differs from the shipped recipe, its notes and inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.report.synthetic_run import write_run
from tests.report.test_evaluation_page import write as write_evaluation
from whetstone.core.call_tests import CallCase, CallTests
from whetstone.core.problem import AssertTests, InteractiveCase, InteractiveTests, Problem, PythonInteractor
from whetstone.data.case_inputs import CaseInputs, input_texts
from whetstone.data.files import write_problems
from whetstone.report.curves import read_runs, run_comparison
from whetstone.report.evaluation_page import write_evaluation_page
from whetstone.report.metrics import seconds_by_step
from whetstone.report.page import run_report
from whetstone.report.run_data import read_run
from whetstone.report.starts import STARTS_FILE, read_starts
from whetstone.report.view.library import Library
from whetstone.run.recipe import load_recipe
from whetstone.run.start_record import COMMAND_VARIABLE, record_start


@pytest.mark.process
def test_a_start_has_the_command_the_versions_and_the_changes_of_the_shipped_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, "whetstone train tiny seed=3")
    record_start(tmp_path, load_recipe("tiny", ["seed=3", "trainer.lr=0.001", "out=elsewhere"]))
    with (tmp_path / STARTS_FILE).open("a") as file:
        file.write("{torn\n")
    record_start(tmp_path, load_recipe("tiny", ["name=mine"]))
    shipped, own = read_starts(tmp_path)
    assert (shipped.command, shipped.shipped) == ("whetstone train tiny seed=3", "tiny")
    assert shipped.settings == {"seed": (0, 3), "trainer.lr": (0.0003, 0.001)}
    assert {"whetstone", "python"} <= shipped.versions.keys()
    assert own.shipped == ""
    assert own.settings["trainer.steps"] == (None, 100)


@pytest.mark.process
def test_the_page_is_named_by_its_folder_and_has_recipe_starts_and_notes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "seed-3", steps=2, name="tiny")
    record_start(folder, load_recipe("tiny"))
    (folder / "notes.md").write_text("# Why\nIt learns.\n")
    page = run_report(read_run(folder), {})["page"]
    assert page["title"] == "seed-3"
    assert ("recipe", "tiny") in page["facts"]
    assert page["notes"] == "# Why\nIt learns."
    assert page["recipe"]["trainer.prompts_per_step"] == 4
    assert [start.shipped for start in page["starts"]] == ["tiny"]
    assert page["finished"]


def test_a_run_with_missing_steps_is_not_finished(tmp_path: Path) -> None:
    folder = write_run(tmp_path, steps=4)
    file = folder / "metrics.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-2]))
    assert not run_report(read_run(folder), {})["page"]["finished"]


def test_runs_are_compared_by_the_settings_that_differ(tmp_path: Path) -> None:
    runs = [str(write_run(tmp_path / name, steps=2)) for name in ("one", "two")]
    recipe = tmp_path / "two" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("lr: 2.0e-5", "lr: 1.0e-4").replace("demo", "other"))
    settings = run_comparison(read_runs(runs))["settings"]
    assert settings == [{"key": "trainer.lr", "values": [2e-5, 1e-4]}]


def test_the_time_of_a_step_leaves_out_an_interruption() -> None:
    ends = [100.0, 110.0, 121.0, 90_000.0, 90_010.0]
    records: list[dict[str, Any]] = [
        {"kind": "train", "step": step, "time": {"at": end, "step": 10.0}} for step, end in enumerate(ends, 1)
    ]
    records.insert(2, {"kind": "eval", "step": 2, "time": {"at": 111.0}})
    assert seconds_by_step(records) == [(1, 10.0), (2, 20.0), (3, 31.0), (4, 31.0), (5, 41.0)]
    assert seconds_by_step([{"kind": "train", "step": 1}]) == []


def test_every_kind_of_case_has_its_input() -> None:
    class_case = CallCase([None, 3], [[1], [2]], operations=["Counter", "add"])
    interactor = PythonInteractor("def interact(input, read, write):\n    return True")
    tests = [
        (CallTests([CallCase(1, [[1, "a"], None], {"k": 2})], "f"), ['f([1,"a"], null, k=2)']),
        (CallTests([class_case], class_="Counter"), ["Counter[1]\nadd[2]"]),
        (AssertTests(asserts=["assert f(1) == 2"]), ["assert f(1) == 2"]),
        (AssertTests(check="def check(candidate): ...", entry_point="f"), []),
        (InteractiveTests([InteractiveCase("5\n")], interactor), ["5\n"]),
    ]
    assert [input_texts(Problem("p", "", one)) for one, _ in tests] == [inputs for _, inputs in tests]


def test_inputs_come_from_the_problem_set_and_the_view_reads_viewed_folders_only(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    data = tmp_path / "problems.jsonl"
    write_problems(data, [Problem("p/1", "about p/1", CallTests([CallCase(1, [[1] * 500])], "f"))])
    folder = write_evaluation(tmp_path / "runs" / "set", {"p/1": [False]})
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["benchmark"] = {"source": str(data)}
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    page = write_evaluation_page(folder).read_text()
    assert "f([1,1,1," in page
    for roots, seen in (([tmp_path / "runs"], False), ([tmp_path / "runs", tmp_path], True)):
        library = Library(roots, lambda run: [])
        [place] = [one for one in library.places().values() if one.kind == "evaluation"]
        assert bool(library.inputs(place).of("p/1")) == seen
    assert CaseInputs([str(tmp_path / "moved.jsonl"), "micro:heldout"]).of("p/1") == []
