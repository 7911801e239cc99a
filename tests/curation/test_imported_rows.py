"""Tasks made of the rows of public sets, with local clones."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.judge.repository_tasks import BASE, ROMAN, TESTS, pytest_environment
from whetstone.cli.main import main
from whetstone.core.verdict import Verdict
from whetstone.judge.repository.base import read_base
from whetstone.judge.repository.grader import RepositoryGrader
from whetstone.judge.repository.task import base_archive, read_tasks
from whetstone_curation.repositories.imported_rows import FORMATS, ImportedRow, read_imported

OLD_TESTS = "from roman import from_roman\n\n\ndef test_from_roman():\n    assert from_roman('MDC') == 1600\n"
WRONG = {path: data.decode() for path, data in BASE.items()} | {"tests/test_roman.py": OLD_TESTS}
RIGHT = WRONG | {"src/roman/convert.py": ROMAN, "tests/test_roman.py": TESTS, "README.md": "Repaired.\n"}
FAILING = [
    "tests/test_roman.py::test_to_roman[1-I]",
    "tests/test_roman.py::test_to_roman[1994-MCMXCIV]",
    "tests/test_roman.py::test_of_several",
]
PASSING = ["tests/test_roman.py::test_from_roman", "tests/test_roman.py::test_unknown_letters"]

OUTSIDE = """diff --git a/../evil.py b/../evil.py
new file mode 100644
--- /dev/null
+++ b/../evil.py
@@ -0,0 +1 @@
+import os
"""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    done = subprocess.run([*command, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def clone(folder: Path, *states: Mapping[str, str]) -> list[str]:
    """Make a repository with a commit for each state of its files; return the commits."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    commits: list[str] = []
    for files in states:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, newline="")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "state")
        commits.append(git(folder, "rev-parse", "HEAD").strip())
    return commits


@pytest.fixture(scope="module")
def environment() -> Generator[str]:
    with pytest_environment() as folder:
        yield str(folder)


def public_rows(clones: Path) -> dict[str, dict[str, Any]]:
    """Return a row of each format, by its id, and make its clone."""
    before, after = clone(clones / "numbers__roman", WRONG, RIGHT)
    git(clones, "clone", "-q", "--bare", "numbers__roman", "bare.git")
    mirror = "swesmith/numbers__roman.0123abcd"
    clone(clones / mirror, RIGHT)
    difference = ("diff", before, after, "--")
    swe_bench = {
        "repo": "numbers/roman",
        "instance_id": "numbers__roman-1",
        "base_commit": before,
        "patch": git(clones / "numbers__roman", *difference, "src", "README.md"),
        "test_patch": git(clones / "numbers__roman", *difference, "tests").rstrip("\n"),
        "problem_statement": "Roman numerals are wrong.",
        "version": "1.0",
    }
    lists = {"FAIL_TO_PASS": FAILING, "PASS_TO_PASS": PASSING}
    texts = {name: json.dumps(tests) for name, tests in lists.items()}
    nemotron = {**swe_bench, **texts, "repo": "other/bare", "instance_id": "nemotron-1"}
    metadata = {"instance_id": "nemotron-1", "instance_dict": json.dumps(nemotron)}
    return {
        "numbers__roman-1": {
            **swe_bench,
            **lists,
            "docker_image": "swerebench/roman",
            "license_name": "MIT License",
            "install_config": {"test_cmd": "pytest"},
        },
        "nemotron-1": {"responses_create_params": {"input": [], "metadata": metadata}},
        "roman.0123abcd.func_1": {
            "instance_id": "roman.0123abcd.func_1",
            "repo": mirror,
            "patch": git(clones / "numbers__roman", "diff", after, before, "--", "src"),
            "image_name": "swesmith/roman",
            "problem_statement": "Numerals lack letters.",
            **lists,
        },
    }


@pytest.mark.process
@pytest.mark.extended
def test_rows_of_each_format_give_tasks_and_others_are_listed_with_the_reason(
    tmp_path: Path, environment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    clones, out = tmp_path / "clones", tmp_path / "set"
    rows = public_rows(clones)
    first = rows["numbers__roman-1"]
    # Windows writes its line ends into a patch; a set loses those of the files.
    rows["windows"] = {**first, "instance_id": "windows", "patch": first["patch"].replace("\n", "\r\n")}
    before, _ = clone(clones / "numbers__windows", _with_windows_ends(WRONG), _with_windows_ends(RIGHT))
    gone = [*PASSING, "tests/test_gone.py::test_x"]
    lost = {"repo": "numbers/windows", "base_commit": before, "PASS_TO_PASS": gone}
    rows["lost"] = {**first, **lost, "instance_id": "lost"}
    cascade = {"instance_id": "c", "golden_patch": first["patch"], "original_prompt": "Repair it."}
    refused: list[tuple[dict[str, Any], str]] = [
        (
            {"instance_id": "i", "image_name": "x/y", "problem_statement": "z"},
            "`repo`; its image x/y is not read",
        ),
        (cascade, "required field `repo`; take rows with the columns of SWE-bench"),
        ({**first, "repo": "no/where"}, r"no clone; git clone https://github.com/no/where \S+no__where"),
        ({**first, "repo": "../roman"}, r"\$.repo"),
        ({**first, "base_commit": "0" * 40}, "git checkout: "),
        ({**first, "base_commit": "--help"}, r"\$.base_commit"),
        ({**first, "patch": None}, "required field `patch`; take rows with the columns of SWE-bench"),
        ({**first, "patch": first["test_patch"]}, "git apply: error: patch failed"),
        ({**first, "patch": OUTSIDE}, "git apply: error: invalid path '../evil.py'"),
        ({**first, "FAIL_TO_PASS": ["TestRoman/one"]}, "no ids of pytest: .*; take rows in Python"),
        ({**first, "FAIL_TO_PASS": "[not json"}, "`FAIL_TO_PASS` is neither JSON nor Python data"),
        ({**first, "FAIL_TO_PASS": PASSING}, "test_from_roman passes before the patch"),
        ({**first, "FAIL_TO_PASS": ["tests/test_roman.py::test_x"]}, "test_x does not always pass after the"),
        ({**first, "FAIL_TO_PASS": ["tests/test_y.py::test_x"]}, "tests/test_y.py is not there after its"),
        ({**first, "problem_statement": "'MCMXCIV', 'IV', 'I', ['XL', 'XC', 'CD']."}, "the statement hides"),
        ({"responses_create_params": {"metadata": {"instance_dict": "{"}}}, "`instance_dict` is neither"),
        (first, "another row has the id numbers__roman-1"),
    ]
    for number, (row, _) in enumerate(refused[:-1]):
        if "instance_id" in row:
            row["instance_id"] = f"refused-{number}"
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, [*rows.values(), *(row for row, _ in refused)])))
    options = ["--environment", environment, "--repeats", "2", "--cpu-s", "9", "--out", str(out)]
    assert main(["data", "repositories", "import", str(file), "--repositories", str(clones), *options]) == 0
    assert (
        f"{len(rows)} tasks; {len(refused)} of {len(refused) + len(rows)} gave none"
        in capsys.readouterr().out
    )
    card = json.loads((out / "card.json").read_bytes())
    for (row, reason), record in zip(refused, card["packages"][len(rows) :], strict=True):
        assert re.search(reason, record["dropped"]), (row, record["dropped"])
    assert card["packages"][0]["licence"] == "MIT License"

    with RepositoryGrader(environment) as grader:
        tasks = list(read_tasks(out))
        assert [task.id for task in tasks] == [*rows]
        for task in tasks:
            base = read_base(base_archive(out, task))
            assert "tests/test_roman.py" not in base
            assert {test.id.partition("[")[0] for test in task.fail_to_pass} == {
                test.partition("[")[0] for test in FAILING
            }
            assert [test.id for test in task.pass_to_pass] == PASSING
            reference = {path: text.encode() for path, text in task.reference.items() if text is not None}
            assert grader.grade(task, base, reference).score == 1.0
            assert grader.grade(task, base, {}).verdict is Verdict.WRONG_ANSWER


def _with_windows_ends(files: Mapping[str, str]) -> dict[str, str]:
    return {name: text.replace("\n", "\r\n") if "src" in name else text for name, text in files.items()}


@pytest.mark.parametrize(
    ("columns", "failing", "passing"),
    [
        ({"FAIL_TO_PASS": repr(FAILING), "PASS_TO_PASS": repr(PASSING)}, FAILING, PASSING),
        ({"fail_to_pass": json.dumps(FAILING), "pass_to_pass": PASSING}, FAILING, PASSING),
        ({"FAIL_TO_PASS": [f"./{FAILING[0]}"], "PASS_TO_PASS": None}, FAILING[:1], []),
        ({"FAIL_TO_PASS": FAILING, "PASS_TO_PASS": ""}, FAILING, []),
        ({"FAIL_TO_PASS": FAILING}, FAILING, []),
        ({"FAIL_TO_PASS": ["t.py::a[1 - 'é'"], "test_patch": None}, ["t.py::a[1 - 'é'"], []),
        (
            {"FAIL_TO_PASS": FAILING, "PASS_TO_PASS": ["docs/a.rst::a.rst", "[100%]", *PASSING]},
            FAILING,
            PASSING,
        ),
    ],
)
def test_the_lists_of_tests_are_read_in_the_forms_that_sets_have(
    columns: dict[str, Any], failing: list[str], passing: list[str], tmp_path: Path
) -> None:
    row = {"instance_id": "a", "repo": "a/b", "base_commit": "0" * 40, "problem_statement": "x", "patch": "y"}
    (tmp_path / "rows.jsonl").write_text(json.dumps({"test_patch": "z", **row, **columns}))
    found = read_imported(tmp_path / "rows.jsonl")["a"]
    assert isinstance(found, ImportedRow), found
    assert (found.failing, found.passing) == (failing, passing)
    assert found.test_patch == ("z" if columns.get("test_patch", "") is not None else "")


def test_a_set_never_replaces_the_clones_that_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clones").mkdir()
    (tmp_path / "clones" / "kept").touch()
    (tmp_path / "rows.jsonl").write_text("{}")
    options = ["--repositories", str(tmp_path / "clones"), "--out", str(tmp_path / "clones"), "--replace"]
    assert main(["data", "repositories", "import", str(tmp_path / "rows.jsonl"), *options]) == 2
    assert "would overwrite" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "clones" / "kept").exists()


def test_the_page_names_each_format_that_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "repositories.md").read_text()
    for name, kind in FORMATS.items():
        assert name == "other" or f"| {name} |" in page
        assert all(f"`{column}`" in page for column in [*kind.marks, *kind.inside])
