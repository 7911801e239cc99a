"""``whetstone judge`` from a shell: JSON for machines, a table for people, and errors with the place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.judge.judge_problems import stdin_problem
from whetstone.cli.main import main

pytestmark = pytest.mark.process

PROBLEM = {**stdin_problem(("1 2\n", "3\n"), ("5 5\n", "10\n")), "id": "demo/add"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (tmp_path / "problem.json").write_text(json.dumps(PROBLEM))
    (tmp_path / "right.py").write_text("print(sum(map(int, input().split())))")
    return tmp_path


def run(files: Path, programs: str, *more: str) -> int:
    (files / "programs.jsonl").write_text(programs)
    paths = ["--problems", str(files / "problems.jsonl"), "--programs", str(files / "programs.jsonl")]
    return main(["judge", "run", *paths, "--workers", "1", *more])


def test_a_file_of_programs_becomes_a_line_of_json_each(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = {"problem_id": "demo/add", "source": "print(sum(map(int, input().split())))", "id": 7}
    wrong = {"problem_id": "demo/add", "program": {"language": "python", "source": "print(3)"}}
    assert run(files, json.dumps(right) + "\n\n" + json.dumps(wrong)) == 0
    captured = capsys.readouterr()
    first, second = map(json.loads, captured.out.splitlines())
    assert (first["id"], first["verdict"], first["score"]) == (7, "accepted", 1.0)
    assert (second["problem_id"], second["verdict"], second["score"]) == ("demo/add", "wrong_answer", 0.5)
    assert [case["verdict"] for case in second["cases"]] == ["accepted", "wrong_answer"]
    assert "wrong_answer" in captured.err


def test_judgements_go_to_a_file_when_asked(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"problem_id": "demo/add", "source": "print(3)"}
    assert run(files, json.dumps(line), "--out", str(files / "out.jsonl")) == 0
    assert json.loads((files / "out.jsonl").read_text())["verdict"] == "wrong_answer"
    assert "wrong_answer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ("", "no programs"),
        ("{", "line 1: not JSON"),
        ("[]", "line 1: not a JSON object"),
        ('{"problem_id": "demo/add", "sorce": "x"}', "did you mean `source`?"),
        ('{"source": "x"}', "`problem_id` must be"),
        ('\n{"problem_id": "demo/ad", "source": "x"}', "line 2: `problem_id`: no problem 'demo/ad'"),
        ('{"problem_id": "demo/add"}', "exactly one of"),
        ('{"problem_id": "demo/add", "source": 3}', "`source` must be"),
        ('{"problem_id": "demo/add", "source": "x", "language": 3}', "`language` must be"),
        ('{"problem_id": "demo/add", "program": {}, "language": "c"}', "`program` has its own"),
        ('{"problem_id": "demo/add", "program": {"language": "python"}}', "`program`"),
        ('{"problem_id": "demo/add", "program": {"language": "cobol", "source": "x"}}', "runs python"),
    ],
)
def test_bad_input_is_named_with_its_place(
    files: Path, programs: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, programs) == 2
    assert said in capsys.readouterr().err


def test_one_program_is_shown_case_by_case(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "one", str(files / "problem.json"), str(files / "right.py")]) == 0
    assert capsys.readouterr().out.count("accepted") == 3
    assert main(["judge", "one", str(files / "none.json"), str(files / "right.py")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_a_program_is_in_the_language_of_its_file_unless_an_option_names_another(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "sum.sh").write_text("read a b; echo $((a + b))")
    assert main(["judge", "one", str(files / "problem.json"), str(files / "sum.sh")]) == 0
    assert capsys.readouterr().out.count("accepted") == 3
    command = ["judge", "one", str(files / "problem.json"), str(files / "sum.sh"), "--language"]
    assert main([*command, "python"]) == 1
    assert "compile_error" in capsys.readouterr().out
    assert main([*command, "cobol"]) == 2
    assert "cobol" in capsys.readouterr().err
    (files / "sum.shh").write_text("read a b; echo $((a + b))")
    unknown = ["judge", "one", str(files / "problem.json"), str(files / "sum.shh")]
    assert main(unknown) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in ("sum.shh", "--language", ".cpp", ".sh", "javascript"))
    assert main([*unknown, "--language", "bash"]) == 0
    assert "accepted" in capsys.readouterr().out
    line = {"problem_id": "demo/add", "source": "read a b; echo $((a + b))", "language": "bash"}
    assert run(files, json.dumps(line)) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "accepted"


def test_a_shell_may_ask_for_the_first_failure_or_a_choice_of_cases(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = json.dumps({"problem_id": "demo/add", "source": "print(0)"})
    assert run(files, wrong, "--stop-at-first-failure") == 0
    assert len(json.loads(capsys.readouterr().out)["cases"]) == 1
    assert run(files, wrong, "--max-cases", "1", "--subset-seed", "3") == 0
    assert len(json.loads(capsys.readouterr().out)["cases"]) == 1
    assert run(files, wrong, "--max-cases", "0") == 2
    assert "max-cases" in capsys.readouterr().err


def test_judging_one_program_imports_little(files: Path) -> None:
    heavy = {"torch", "numpy", "pyarrow", "pydantic", "yaml", "rich", "asyncio", "whetstone.sandbox.run"}
    client = (
        "from whetstone.cli.main import main\nmain(['judge', 'one', *sys.argv[1:]])",
        *(str(files / "problem.json"), str(files / "right.py")),
    )
    assert not heavy & _imported(*client)
    # What only other kinds of test need is imported when one is judged.
    heavy = heavy - {"whetstone.sandbox.run"} | {"whetstone.judge.kinds.asserts", "importlib.metadata"}
    assert not heavy & _imported("import whetstone.judge.workers.main")


def _imported(code: str, *arguments: str) -> set[str]:
    """The modules that a process has imported after ``code``."""
    code = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())
