"""The command starts without what it does not need, and ends quietly when nobody reads on."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from whetstone.cli.main import VERBS, main

pytestmark = pytest.mark.process

HEAVY = {"torch", "transformers", "pyarrow", "numpy", "pydantic", "rich", "msgspec", "yaml"}


def loaded(*words: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    code = (
        "import contextlib, io, json, sys\n"
        "from whetstone.cli.main import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main({list(words)!r})\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_the_way_in_loads_nothing_heavy(word: str) -> None:
    modules = loaded(word)
    assert not modules & HEAVY
    assert len([name for name in modules if name.startswith("whetstone")]) <= 11


@pytest.mark.drawn(3)
@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_loads_no_torch_and_no_other_verb(verb: str) -> None:
    modules = loaded(verb, "--help")
    assert not modules & {"torch", "transformers"}
    assert not {f"whetstone.cli.{other}" for other in VERBS if other != verb} & modules


@pytest.mark.parametrize(
    "words",
    ["--help", "data show builtin:train", "data show schema", "data show sources", "judge environment list"],
)
def test_a_closed_pipe_is_a_quiet_end(words: str) -> None:
    """The reader takes nothing, so that the first byte finds the pipe closed."""
    command = [sys.executable, "-m", "whetstone", *words.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        said = run.stderr.read()
    assert (run.returncode, said) == (0, "")


@pytest.mark.drawn(3)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", ["data show builtin:train", "data show schema", "--help", "eval --help", "--version"]
)
def test_standard_output_on_a_full_disk_is_said(words: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "whetstone", *words.split()]
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 2
    assert "No space left on device; free some space" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_watcher_without_a_run_ends_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "recipe.yaml").write_text("name: tiny\n")
    missing = str(tmp_path / "tinny")
    assert main(["eval", "watch", missing]) == 2
    said = capsys.readouterr().err
    assert "no run there (no recipe.yaml); did you mean `tiny`?" in said


@pytest.mark.parametrize(("hard", "soft"), [(3_000, 3_000), (100_000, 65_536)])
def test_a_command_may_open_as_many_files_as_the_hard_limit_allows(hard: int, soft: int) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        hard = soft = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    code = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))\n"
        "from whetstone.cli.main import main\n"
        "main(['recipes'])\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"({soft}, {hard})"
