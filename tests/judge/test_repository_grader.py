"""Grading changes of a repository, at every isolation tier."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path

import msgspec
import pytest

from tests.judge.repository_tasks import (
    BASE,
    REFERENCE,
    ROMAN,
    TESTS,
    make_task,
    pytest_environment,
)
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.core.errors import UserError
from whetstone.core.verdict import Verdict
from whetstone.judge.repository.base import base_name, pack_base, read_base
from whetstone.judge.repository.grader import RepositoryGrader, changed_files
from whetstone.judge.repository.task import RepositoryTask, read_tasks
from whetstone.sandbox import Tier

pytestmark = pytest.mark.process

RIGHT = ROMAN.encode()


@pytest.fixture(scope="module", params=ALL_TIERS)
def graded(request: pytest.FixtureRequest) -> Generator[tuple[RepositoryGrader, RepositoryTask]]:
    skip_unless_offered(request.param)
    with pytest_environment() as folder, RepositoryGrader(str(folder), tier=request.param) as grader:
        yield grader, make_task(grader)


def test_the_reference_passes_and_the_base_fails(graded: tuple[RepositoryGrader, RepositoryTask]) -> None:
    grader, task = graded
    assert task.sealed
    assert [test.id for test in task.fail_to_pass] == [
        *(f"tests/test_roman.py::test_to_roman[{number}]" for number in range(3)),
        "tests/test_roman.py::test_of_several",
    ]
    right = grader.grade(task, BASE, REFERENCE)
    assert (right.verdict, right.score, len(right.cases)) == (Verdict.ACCEPTED, 1.0, 6), right
    base = grader.grade(task, BASE, {})
    assert (base.verdict, base.score) == (Verdict.WRONG_ANSWER, 0.0)
    assert [case.verdict is Verdict.ACCEPTED for case in base.cases] == [False] * 4 + [True] * 2
    assert base.reason == "tests/test_roman.py::test_to_roman[0]: assertion 1 failed"


WRONG: dict[str, Mapping[str, bytes | None]] = {
    "exits": {"src/roman/convert.py": b"import os\nos._exit(0)\n"},
    "does not import": {"src/roman/convert.py": b"def to_roman(:\n"},
    "removes the package": {"src/roman/__init__.py": None, "src/roman/convert.py": None},
    "breaks another test": {"src/roman/convert.py": RIGHT.replace(b"sum(", b"1 + sum(")},
    "equals everything": {
        "src/roman/convert.py": b"class E(str):\n    def __eq__(self, o): return True\n    __hash__ = None\n"
        b"def to_roman(n): return E()\ndef from_roman(t): return {}[t]\n"
    },
    "edits the tests": {
        "tests/test_roman.py": b"def test_a(): pass\n",
        "tests/conftest.py": b"collect_ignore=['.']\n",
    },
    "replaces the folder of tests": {"tests": b"", "src/roman/conftest.py": b"import os\nos._exit(0)\n"},
    "forges the report": {
        "src/roman/convert.py": b"import gc\nfor o in gc.get_objects():\n"
        b"    if type(o).__name__ == 'Observer': o.value = lambda h, v: o.truth(h, True)\n"
        b"def to_roman(n): return 'I'\ndef from_roman(t): return {}[t]\n"
    },
}


@pytest.mark.parametrize("change", WRONG)
def test_a_change_that_does_not_solve_the_task_is_refused(
    change: str, graded: tuple[RepositoryGrader, RepositoryTask]
) -> None:
    grader, task = graded
    found = grader.grade(task, BASE, WRONG[change])
    assert found.score == 0.0
    assert not found.accepted


def test_limits_have_their_verdicts(graded: tuple[RepositoryGrader, RepositoryTask]) -> None:
    grader, task = graded
    endless = {"src/roman/convert.py": b"while True: pass\n"}
    short = msgspec.structs.replace(task, limits=msgspec.structs.replace(task.limits, cpu_s=0.5))
    assert grader.grade(short, BASE, endless).verdict is Verdict.TIME_LIMIT
    loud = {"src/roman/convert.py": b"import os\nwhile True: os.write(1, b'x' * 65536)\n"}
    # pytest captures the output in a file, which is memory.
    stopped = {Verdict.OUTPUT_LIMIT, Verdict.MEMORY_LIMIT}
    assert grader.grade(task, BASE, loud).verdict in stopped


def test_a_wrong_value_stays_wrong_whatever_limit_follows(
    graded: tuple[RepositoryGrader, RepositoryTask],
) -> None:
    grader, task = graded
    short = msgspec.structs.replace(task, limits=msgspec.structs.replace(task.limits, cpu_s=0.5))
    wrong_then_endless = b"def to_roman(n): return '?'\ndef from_roman(t):\n    while True: pass\n"
    found = grader.grade(short, BASE, {"src/roman/convert.py": wrong_then_endless})
    assert found.verdict is Verdict.WRONG_ANSWER
    assert {case.verdict for case in found.cases} == {Verdict.WRONG_ANSWER, Verdict.TIME_LIMIT}


def test_a_change_that_is_too_large_is_refused_and_impossible_names_are_ignored(
    graded: tuple[RepositoryGrader, RepositoryTask],
) -> None:
    grader, task = graded
    deep = {f"src/roman/{'d/' * number}x": b"" for number in range(400)}
    for more, verdict in (
        ({f"src/roman/{number}": b"" for number in range(4001)}, Verdict.OUTPUT_LIMIT),
        ({f"src/roman/{number}/{'d/' * 50}x": b"" for number in range(100)}, Verdict.OUTPUT_LIMIT),
        ({"src/roman/large": bytes((128 << 20) + 1)}, Verdict.OUTPUT_LIMIT),
        ({**deep, "src/roman/\0": b"", f"src/roman/{'n' * 256}": b"", "src/roman/../../tests": b""}, None),
    ):
        found = grader.grade(task, BASE, {**REFERENCE, **more})
        assert found.verdict is (verdict or Verdict.ACCEPTED)
        assert {case.verdict for case in found.cases} == {found.verdict}


def test_files_that_configure_pytest_cannot_be_replaced_by_folders(
    graded: tuple[RepositoryGrader, RepositoryTask],
) -> None:
    grader, task = graded
    open_task = msgspec.structs.replace(task, may_change=["."], protected=[])
    configuration = {"pyproject.toml": b"[tool.pytest.ini_options]\nfilterwarnings = ['error']\n"}
    removed = {"pyproject.toml/x": b"", "conftest.py/x": b"", "src/conftest.py/x/y": b""}
    assert not open_task.may_be_changed("src/sitecustomize/__init__.py")
    warns = {"src/roman/convert.py": ROMAN.encode() + b"import warnings\nwarnings.warn('old')\n"}
    assert grader.grade(open_task, {**BASE, **configuration}, {**REFERENCE, **removed}).accepted
    assert not grader.grade(open_task, {**BASE, **configuration}, {**warns, **removed}).accepted


def test_an_unsealed_task_has_no_score() -> None:
    skip_unless_offered(Tier.RESTRICTED)
    with pytest_environment() as folder, RepositoryGrader(str(folder)) as grader:
        task = msgspec.structs.replace(make_task(grader), sealed=False)
        found = grader.grade(task, BASE, REFERENCE)
        assert (found.accepted, found.score, found.unpaid) == (True, None, "shared_interpreter")
        with pytest.raises(UserError, match="needs the environment `other`"):
            grader.grade(msgspec.structs.replace(task, environment="other"), BASE, {})


PROCESSES = """import subprocess
from roman import to_roman


def test_in_a_process():
    subprocess.run(["/bin/true"])
    assert to_roman(4) == "IV"
"""


def test_a_task_is_refused_if_its_reference_fails_at_another_tier() -> None:
    """Without control groups, no program starts a process at the weakest tier."""
    skip_unless_offered(Tier.RESTRICTED)
    skip_unless_offered(Tier.USERNS)
    with (
        pytest_environment() as folder,
        RepositoryGrader(str(folder), tier=Tier.USERNS) as recorder,
        RepositoryGrader(str(folder), tier=Tier.RESTRICTED) as other,
    ):
        reference = {"src/roman/convert.py": ROMAN}
        for tests, refused in ((TESTS, False), (PROCESSES, True)):
            made = make_task(recorder, tests={"tests/test_roman.py": tests})
            task = msgspec.structs.replace(made, id=tests, reference=reference)
            recorder.require_accepted_reference(task, BASE)
            if refused and not other.grade(task, BASE, REFERENCE).accepted:
                with pytest.raises(UserError, match="not accepted at isolation tier `restricted`"):
                    other.require_accepted_reference(task, BASE)
                with pytest.raises(UserError, match="not accepted at isolation tier `restricted`"):
                    other.grade(task, BASE, {})
            else:
                other.require_accepted_reference(task, BASE)


def test_an_environment_without_pytest_is_refused_with_a_remedy() -> None:
    with pytest.raises(UserError, match="whetstone judge environment create NAME pytest"):
        RepositoryGrader("default")


def test_a_base_is_the_same_after_packing(tmp_path: Path) -> None:
    archive = pack_base(BASE)
    path = tmp_path / "base.tar.gz"
    path.write_bytes(archive)
    assert read_base(path) == BASE
    assert archive == pack_base(dict(reversed(BASE.items())))
    assert base_name(BASE) != base_name({**BASE, "README.md": b""})


CONFLICTS: list[tuple[Mapping[str, bytes | None], dict[str, bytes]]] = [
    ({"a/b": b"2"}, {"a/b": b"2", "a/c": b"1", "d": b"1"}),
    ({"a": b"2"}, {"a": b"2", "d": b"1"}),
    ({"d/e": b"2"}, {"a/b": b"1", "a/c": b"1", "d/e": b"2"}),
    ({"a/b": None, "d": None}, {"a/c": b"1"}),
    ({"x": b"2", "x/y": b"2"}, {"a/b": b"1", "a/c": b"1", "d": b"1", "x/y": b"2"}),
]


@pytest.mark.parametrize(("change", "files"), CONFLICTS)
def test_a_change_replaces_files_and_folders(
    change: Mapping[str, bytes | None], files: dict[str, bytes]
) -> None:
    assert changed_files({"a/b": b"1", "a/c": b"1", "d": b"1"}, change) == files


def test_a_malformed_task_is_named_with_its_line(tmp_path: Path) -> None:
    folder = tmp_path
    with pytest.raises(UserError, match=r"a set of repository tasks is a folder with tasks\.jsonl"):
        list(read_tasks(folder / "none"))
    (folder / "tasks.jsonl").write_text('\n{"id": "a"}\n')
    with pytest.raises(UserError, match=r"tasks\.jsonl, line 2: .*missing required field"):
        list(read_tasks(folder))
