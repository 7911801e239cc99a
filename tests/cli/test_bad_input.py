"""Bad input gets exit status 2 and a message that names the place and the way out; nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warm_command import whetstone

pytestmark = pytest.mark.process

TINY = Path(__file__).parents[2] / "recipes" / "tiny.yaml"
GOOD = '{"id": "a", "statement": "s", "tests": {"kind": "stdin", "cases": [{"input": "", "output": "1"}]}}\n'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", str(TINY), "trainr.lr=1"], ["unknown key `trainr`", "did you mean `trainer`"]),
        (["train", str(TINY), "trainer.lrr=1"], ["`trainer.lrr`", "did you mean `trainer.lr`"]),
        (["train", str(TINY), "trainer.lr=fast"], ["trainer.lr", "number"]),
        (["train", str(TINY), "algorithm.preset=gropo"], ["gropo", "did you mean `grpo`"]),
        (["train", str(TINY), "steps"], ["key.path=value"]),
        (["train", "nothing.yaml"], ["nothing.yaml", "recipes/tiny.yaml"]),
        (["eval", "--model", "m", "--benchmark", "humaneval", "--data", "none.jsonl"], ["none.jsonl"]),
        (["report", "no-run"], ["no-run"]),
    ],
)
def test_what_a_person_can_get_wrong(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    done = whetstone(*arguments, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": "b"', ["line 2", "JSON"]),
        ('{"id": "b", "statement": 3}', ["line 2", "statement"]),
        (GOOD.strip(), ["line 2", "line 1", "'a'"]),
        ('{"id": "b", "statement": "s", "tests": {"kind": "stdin", "cases": []}}', ["line 2", "tests.cases"]),
        ('{"id": "b", "statemnt": "s"}', ["line 2", "statement"]),
    ],
)
def test_a_problem_line_names_file_line_and_field(line: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(GOOD + line + "\n", encoding="utf-8")
    done = whetstone("data", "show", "p.jsonl", folder=tmp_path)
    assert done.returncode == 2, done.stdout
    assert "p.jsonl" in done.stderr
    for word in words:
        assert word in done.stderr.replace(":2", " line 2").replace(":1", " line 1")


def test_an_isolation_tier_that_is_not_there_refuses_to_judge(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(GOOD, encoding="utf-8")
    (tmp_path / "a.py").write_text("print(1)", encoding="utf-8")
    done = whetstone("judge", "one", "p.json", "a.py", "--minimum-tier", "rot", folder=tmp_path)
    assert done.returncode == 2
    assert "root" in done.stderr
