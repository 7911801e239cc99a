"""``whetstone init`` writes a folder whose tests, problems and recipe work by the commands that it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_tutorials import commands_beside_this_python
from whetstone.cli.main import main
from whetstone.data.files import read_problems
from whetstone.run.recipe import load_recipe

SHORT = (
    "model.scratch.hidden_size=48 model.scratch.layers=1 warmup.steps=2 warmup.batch_size=4 trainer.steps=1 "
    "trainer.prompts_per_step=2 trainer.samples_per_prompt=2 evaluation.n=1 trainer.checkpoint_every=1"
)


@pytest.mark.parametrize("name", ["mine", "my own/größer #1 'x'", "a: b"])
def test_the_recipe_names_the_parts_and_the_problems_of_the_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if ":" in name:
        assert main(["init", name]) == 2
        assert "the path has a colon" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []
        return
    assert main(["init", name]) == 0
    monkeypatch.syspath_prepend(tmp_path / name)
    monkeypatch.delitem(sys.modules, "my_parts", raising=False)
    recipe = load_recipe(Path(name) / "recipe.yaml")
    assert recipe.name == Path(name).name
    environment = recipe.environment.build()
    assert type(environment).__module__ == "my_parts"
    for problem in read_problems(Path(recipe.data.train)):
        environment.check(problem)
    monkeypatch.delitem(sys.modules, "my_parts")


def test_a_folder_that_is_not_empty_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.yaml").write_text("mine")
    for name, message in {
        tmp_path: "is not empty; give",
        tmp_path / "recipe.yaml": "File exists; give",
    }.items():
        assert main(["init", str(name)]) == 2
        assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]
    assert (tmp_path / "recipe.yaml").read_text() == "mine"


@pytest.mark.process
@pytest.mark.extended
def test_the_printed_commands_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = commands_beside_this_python(tmp_path / "commands")
    tests = tmp_path / "commands" / "pytest"
    tests.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pytest -p no:cacheprovider "$@"\n')
    tests.chmod(0o755)
    assert main(["init", str(tmp_path / "my project")]) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert [command.split("whetstone ")[-1].split()[0] for command in commands] == [
        "pytest",
        "data",
        "train",
    ]
    for command in commands:
        line = f"{command} {SHORT}" if " train " in command else command
        done = subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs" / "my project" / "checkpoints" / "step-1").is_dir()
