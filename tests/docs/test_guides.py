"""The code blocks of guides: commands parse, settings are valid, programs run as far as they can here.

Commands of guides name files, hosts and models of the reader, so they are parsed and not executed; tutorials
and the first hour are executed (test_tutorials.py).
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from whetstone.cli.main import parse_arguments
from whetstone.core.problem import Problem, problem_from
from whetstone.core.settings import read_settings
from whetstone.data.pipeline import load_pipeline
from whetstone.evaluate.plan_file import read_plan
from whetstone.run.recipe import Recipe, load_recipe, with_values

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .+\n)+", re.MULTILINE)
# Folders of this repository that commands name.
FOLDERS = ("recipes/", "examples/")
# These need a package that is not installed here, another host, or objects of the text around them: their
# syntax and their imports are tested.
NOT_RUN = ("commands.md", "integrations.md", "judging.md", "service.md", "weights.md")
VERB = re.compile(r"(?:^|[\s/])whetstone (?=[a-z])")


def blocks(*languages: str) -> list[object]:
    """Return the blocks of all guides in these languages, as parameters of a test."""
    return [
        pytest.param(page, text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, (language, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
        if language in languages
    ]


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words after ``whetstone`` of every command of a page."""
    text = page.read_text(encoding="utf-8")
    found = [block for language, block in BLOCK.findall(text) if language in ("", "sh")]
    for block in [*found, *INDENTED.findall(BLOCK.sub("", text))]:
        for line in block.replace("\\\n", " ").splitlines():
            command = shlex.split(line, comments=True) if VERB.search(line) else []
            names = [at for at, word in enumerate(command) if Path(word).name == "whetstone"]
            if names:
                # What follows `>` is for the shell.
                yield list(takewhile(lambda word: word != ">", command[names[0] + 1 :]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_parses_and_names_files_that_exist(page: Path) -> None:
    for words in commands(page):
        arguments = parse_arguments(words)
        assert arguments.verb == words[0]
        for word in words:
            _, _, path = word.rpartition("=")
            assert not path.startswith(FOLDERS) or (ROOT / path).exists(), word


def test_commands_are_found_and_a_wrong_option_is_an_error() -> None:
    assert sum(len(list(commands(page))) for page in PAGES) > 80
    with pytest.raises(SystemExit):
        parse_arguments(["train", "recipes/tiny.yaml", "--absent"])


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_settings_are_valid(page: Path, text: str, tmp_path: Path) -> None:
    file, values = tmp_path / "settings.yaml", yaml.safe_load(text)
    file.write_text(text, encoding="utf-8")
    if "benchmarks" in values:
        assert read_plan(str(file)).benchmarks
    elif "steps" in values:
        assert load_pipeline(file).steps
    else:
        two_models = "verifier" in values or "codegen_verifier" in text
        base = load_recipe(ROOT / "recipes" / ("tiny-verifier.yaml" if two_models else "tiny.yaml"))
        sections = {} if two_models else base.model_dump(exclude_unset=True)
        if "path" in values.get("model", {}):
            sections.pop("warmup")
        assert read_settings(Recipe, {**sections, **values}) if sections else with_values(base, values)


@pytest.mark.parametrize(("page", "text"), blocks("toml", "json"))
def test_data_blocks_are_read(page: Path, text: str) -> None:
    if text.startswith("{"):
        assert isinstance(problem_from(json.loads(text)), Problem)
    else:
        assert tomllib.loads(text)


@pytest.mark.process
@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_programs_of_pages_use_existing_commands_and_modules(page: Path, text: str, tmp_path: Path) -> None:
    if page.name not in NOT_RUN:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-c", text]
        shell = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert shell.returncode == 0, shell.stderr
        return
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for node in ast.walk(compile(text.replace("…", "..."), page.name, "exec", flags)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("whetstone"):
            path = ROOT / "src" / Path(*(node.module or "").split("."))
            module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            source = module.read_text(encoding="utf-8")
            assert all(re.search(rf"\b{name.name}\b", source) for name in node.names), text


def test_the_two_commands_of_the_readme_are_the_main_job_and_the_tests() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Two commands")[2]
    [(_, block), *_] = BLOCK.findall(section)
    assert [line.partition("#")[0].strip() for line in block.splitlines()] == ["make quickstart", "make test"]
    assert "`make tour`" in section.partition("```\n\n")[2].partition("\n\n")[0]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"quickstart", "test", "tour"} <= set(targets)
