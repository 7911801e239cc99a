"""Programs and tests run under another version of Python, with the same isolation, limits and verdicts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import AMPLE_LIMITS, python, stdin_problem
from tests.judge.test_environments import wheel
from tests.other_pythons import SERIES, empty_environment, other_python
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, problem_from
from whetstone.core.verdict import Verdict
from whetstone.judge import Judge
from whetstone.judge.environments import pythons
from whetstone.judge.environments.environment import environment_named
from whetstone.judge.environments.made import create_environment
from whetstone.judge.environments.pythons import OWN, find_python
from whetstone.sandbox import Tier

DATA = data_beside(__file__)
VERSION = "import sys\nprint('%d.%d' % sys.version_info[:2])"


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # a tier that gives up root must reach it
        yield Path(name)


@pytest.fixture(scope="module", params=SERIES)
def series(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=ALL_TIERS)
def other(request: pytest.FixtureRequest, series: str, base: Path) -> Iterator[Judge]:
    """A judge on each tier, for each other version."""
    skip_unless_offered(request.param)
    found = other_python(series)
    folder = base / f"{series}-{request.param.label}"
    with Judge(1, tier=request.param.label, environment=empty_environment(found, folder)) as judge:
        assert judge.environment.startswith(f"{folder.name}:python{found.version}:")
        yield judge


def problem_of(case: dict[str, Any]) -> dict[str, Any]:
    return {"id": "t", "statement": "", "limits": AMPLE_LIMITS, **case["problem"]}


@pytest.mark.process
def test_a_program_runs_under_the_version_and_the_judgement_names_it(other: Judge, series: str) -> None:
    judgement = other.judge(stdin_problem(("", series)), python(VERSION))
    assert judgement.accepted, judgement
    assert judgement.environment == other.environment
    assert f":python{series}." in judgement.environment


@pytest.mark.process
@pytest.mark.parametrize("name", DATA["programs"])
def test_programs_get_the_verdict_of_every_version(other: Judge, name: str) -> None:
    case = DATA["programs"][name]
    if case.get("processes") and other.isolation == Tier.RESTRICTED.label:
        pytest.skip("a program has one process on this tier")
    for fork_per_case in (True, False):
        judgement = other.judge(problem_of(case), python(case["program"]), fork_per_case=fork_per_case)
        assert judgement.verdict == case["verdict"], judgement
        assert case.get("reason", "") in judgement.reason, judgement
        assert not judgement.shared_interpreter


@pytest.mark.process
def test_syntax_that_is_newer_than_ours_runs(other: Judge, series: str) -> None:
    since = {name: since for name, since in DATA["syntax"].items() if name != "since"}
    for program, number in zip(since.values(), DATA["syntax"]["since"], strict=True):
        expected = Verdict.ACCEPTED if int(series[2:]) >= number else Verdict.COMPILE_ERROR
        judgement = other.judge(stdin_problem(("", "42")), python(program))
        assert judgement.verdict is expected, judgement


@pytest.mark.drawn(1)
@pytest.mark.process
def test_a_problem_names_the_environment_in_which_it_is_judged(
    series: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    found = other_python(series)
    handmade = wheel(tmp_path, "handmade", "VALUE = 42\n")
    assert main(["judge", "environment", "create", "mine", "--python", series, handmade]) == 0
    made = environment_named("mine")
    assert (made.versions, made.interpreter) == ({"handmade": "2.0"}, found.path)
    own = stdin_problem(("", OWN))
    named = stdin_problem(("", series), environment="mine")
    with_package = stdin_problem(("", "42"), environment="mine")
    usual = stdin_problem(("", OWN), environment="default")
    source = "import handmade\nprint(handmade.VALUE)"
    with Judge(1) as judge:
        jobs = [(own, VERSION), (named, VERSION), (with_package, source), (usual, VERSION), (own, source)]
        judgements = [judge.judge(problem, python(program)) for problem, program in jobs]
        assert [j.accepted for j in judgements] == [True, True, True, True, False]
        assert [j.environment for j in judgements] == [
            judge.environment if kind == "own" else made.label for kind in ("own", "2", "2", "own", "own")
        ]
        assert judge.judge(named, None).environment == made.label
        with pytest.raises(UserError, match=r"problem 't/stdin': there is no environment `nothing`"):
            judge.judge(stdin_problem(("", ""), environment="nothing"), python("print()"))
    with Judge(1, environment="mine") as judge:
        assert judge.judge(usual, python(VERSION)).accepted
        assert judge.judge(named, python(VERSION)).environment == judge.environment


@pytest.mark.drawn(1)
@pytest.mark.process
def test_an_interpreter_that_is_gone_is_a_failure_of_the_judge(
    series: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = other_python(series)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    link = tmp_path / f"python{series}"
    link.symlink_to(found.path)
    empty_environment(found, tmp_path / "whetstone" / "environments" / "mine", home=tmp_path)
    problem = stdin_problem(("", series), environment="mine")
    with Judge(1) as judge:
        assert environment_named("mine").interpreter == str(link)
        judge.judge(problem, None)  # reads the environment
        link.unlink()
        judgement = judge.judge(problem, python(VERSION))
        assert (judgement.verdict, judgement.score) == (Verdict.JUDGE_ERROR, None)
        assert judge.judge(stdin_problem(("", OWN)), python(VERSION)).accepted
    with pytest.raises(UserError, match=r"whose interpreter is needed.*create NAME --python VERSION"):
        environment_named("mine")
    assert main(["judge", "environment", "list"]) == 0


@pytest.mark.process
def test_more_environments_than_a_worker_keeps_are_judged_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    own = find_python(OWN)
    names = [f"e{number}" for number in range(5)]
    for name in names:
        folder = empty_environment(own, tmp_path / "whetstone" / "environments" / name)
        (folder / "lib" / f"python{OWN}" / "site-packages" / "only.py").write_text(f"NAME = {name!r}\n")
    source = "import only\nprint(only.NAME)"
    with Judge(1) as judge:
        for name in [*names, *reversed(names)]:
            judgement = judge.judge(stdin_problem(("", name), environment=name), python(source))
            assert judgement.accepted, judgement
            assert judgement.environment.startswith(f"{name}:")


@pytest.mark.parametrize("name", ["/root", "../up", "", "a b", "py312\n"])
def test_a_problem_cannot_name_a_folder(name: str) -> None:
    with pytest.raises(UserError, match="environment"):
        problem_from(stdin_problem(("", ""), environment=name))


def test_a_problem_without_an_environment_is_stored_as_before() -> None:
    problem = problem_from(stdin_problem(("", "")))
    assert "environment" not in msgspec.json.decode(msgspec.json.encode(problem))
    named = problem_from(stdin_problem(("", ""), environment="py312"))
    assert msgspec.json.decode(msgspec.json.encode(named), type=Problem) == named


def fake_python(folder: Path, name: str, answer: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{answer}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with one folder, and neither pyenv nor uv."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for variable in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    return folder


def described(path: Path | str, *numbers: int, kind: str = "cpython", has_lock: bool = True) -> str:
    """The command of a shell that answers as an interpreter does."""
    about = {"path": str(path), "kind": kind, "numbers": numbers, "has_lock": has_lock}
    return f"echo '{msgspec.json.encode(about).decode()}'"


WANTED = next(series for series in ("3.12", "3.13") if series != OWN)
MINOR = int(WANTED[2:])


@pytest.mark.process
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (described("/x", 3, MINOR, 1, kind="pypy"), "it is pypy, and programs run in CPython"),
        (described("/x", 3, MINOR, 1, has_lock=False), "free-threaded build"),
        (described("/x", 3, 10, 13), r"it is Python 3\.10\.13, and programs run in Python 3\.11 to 3\.14"),
        (described("/x", 3, 15, 0), r"it is Python 3\.15\.0"),
        ("echo pyenv: no such command >&2; exit 127", "does not run as an interpreter.*no such command"),
        ("echo 3.12", "does not run as an interpreter"),
    ],
)
def test_what_is_no_suitable_interpreter_is_refused_with_the_reason(
    nothing_installed: Path, answer: str, why: str
) -> None:
    file = fake_python(nothing_installed, f"python{WANTED}", answer)
    with pytest.raises(UserError, match=why):
        find_python(str(file))
    with pytest.raises(UserError, match=rf"no Python {WANTED} in PATH"):
        find_python(WANTED)


@pytest.mark.process
@pytest.mark.parametrize(
    "wanted", ["3", "3.12.1", "python3.12", "", "3.10", "3.15", "2.7", "/no/such/python"]
)
def test_a_version_that_cannot_be_given_is_refused(wanted: str) -> None:
    with pytest.raises(UserError, match=r"give|No such file"):
        find_python(wanted)


@pytest.mark.process
def test_interpreters_of_path_pyenv_and_uv_are_found(nothing_installed: Path) -> None:
    root = nothing_installed.parent
    with pytest.raises(UserError) as missing:
        find_python(WANTED)
    for words in (f"uv python install {WANTED}", f"pyenv install {WANTED}", "--python /path/to", f"{OWN}."):
        assert words in str(missing.value)
    places = [nothing_installed]
    for folder in ("PYENV_ROOT/versions/a/bin", "UV_PYTHON_INSTALL_DIR/cpython-3/bin"):
        (root / folder).mkdir(parents=True)
        places.append(root / folder)
    for place in reversed(places):  # those of PATH come first
        fake_python(place, f"python{WANTED}-config", "exit 1")
        fake_python(place, f"python{WANTED}", described(f"{place}/real", 3, MINOR, 7))
        found = find_python(WANTED)
        assert (found.path, found.version) == (f"{place}/real", f"{WANTED}.7")
    assert [each.series for each in pythons.installed_pythons()] == sorted([OWN, WANTED])
    asked = fake_python(nothing_installed, "uv", f'[ "$4" = {WANTED} ] && echo {root}/by-uv')
    fake_python(root, "by-uv", described("/uv", 3, MINOR, 9))
    assert find_python(WANTED).path == "/uv", asked


@pytest.mark.process
def test_an_environment_of_our_own_version_needs_no_python_option(tmp_path: Path) -> None:
    copy = fake_python(tmp_path, "python", described("/copy", *map(int, f"{OWN}.0".split("."))))
    with pytest.raises(UserError, match=r"run in Whetstone's own; leave --python out"):
        create_environment("mine", ["numpy"], str(copy))
    assert main(["judge", "environment", "list", "--python", "3.12"]) != 0
