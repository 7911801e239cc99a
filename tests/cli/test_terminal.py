"""What a person meets on a terminal: lines of 80 columns, suggestions, completion, and signs of life."""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from whetstone.cli.main import VERBS, build_parser, main
from whetstone.core.progress import Progress
from whetstone.run.display import Display

PROBLEM = {
    "id": "demo/add",
    "statement": "Print the sum.",
    "tests": {"kind": "stdin", "cases": [{"input": "1 2\n", "output": "3\n"}]},
}


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a command and all commands below it."""
    yield parser
    for action in parser._actions:
        if action.nargs == argparse.PARSER:
            for inner in cast("dict[str, argparse.ArgumentParser]", action.choices).values():
                yield from commands(inner)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_command_fits_80_columns(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in commands(build_parser(verb)):
        text = command.format_help()
        assert [line for line in text.splitlines() if len(line) > 80] == [], command.prog
        assert "NODEFAULT" not in text
        assert "PydanticUndefined" not in text


def test_long_commands_in_a_help_continue_after_a_backslash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    [command] = [each for each in commands(build_parser("data")) if each.prog == "whetstone data difficulty"]
    joined = command.format_help().replace(" \\\n      ", " ")
    assert "data difficulty sets/clean --out sets/rated --model models/Qwen3-8B --n 8" in joined


@pytest.mark.parametrize("words", [[], ["judge"], ["data"]])
def test_a_command_without_its_action_prints_its_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    assert "usage: " + " ".join(["whetstone", *words]) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tran", "no command `whetstone tran`; did you mean `train`?"),
        ("judge won", "no command `whetstone judge won`; did you mean `one`?"),
        ("eval --limt 3", "no option `--limt`; did you mean `--limit`?"),
        ("eval compare a b --lst", "no option `--lst`; did you mean `--list`?"),
        ("train tiny --dryrun", "no option `--dryrun`; did you mean `--dry-run`?"),
        ("judge one p a --minimum-tier rot", "not one of restricted, userns, root; did you mean `root`?"),
        ("completion bsh", "`bsh` is not one of bash, zsh, fish, tcsh; did you mean `bash`?"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_answered_by_the_closest_one(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.process
def test_bash_completes_commands_options_values_and_files(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    script = subprocess.run(
        [sys.executable, "-m", "whetstone", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    ask = """
try() {
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  _shtab_whetstone whetstone "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
  echo "${COMPREPLY[@]}"
}
try whetstone tra
try whetstone judge o
try whetstone judge one --minimum-t
try whetstone judge one --minimum-tier us
try whetstone data vali
try whetstone train mi
"""
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split("\n")[:6] == [
        "train", "one", "--minimum-tier", "userns", "validate", "mine.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_every_shell_gets_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "minimum-tier" in capsys.readouterr().out


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.process
def test_a_terminal_says_at_once_that_torch_is_loading(rank: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('loaded')\n")
    code = (
        "import sys, whetstone.cli.recipes as recipes\n"
        "from whetstone.cli.main import main\n"
        "recipes.shipped_names = lambda kind: __import__('torch')\n"
        "main(['recipes'])\n"
    )
    control, terminal = pty.openpty()
    # Python 3.13 colours tracebacks.
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "RANK": rank, "PYTHON_COLORS": "0"}
    with subprocess.Popen([sys.executable, "-c", code], stderr=terminal, env=environment) as run:
        os.close(terminal)
        said = b""
        while True:
            try:
                data = os.read(control, 1 << 16)
            except OSError:
                break
            if not data:
                break
            said += data
        run.wait()
    os.close(control)
    assert said.startswith(b"loading torch\r\n") == (rank == "0")
    assert b"ImportError: loaded" in said


def test_bars_and_steps_fit_80_columns() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, width=80, force_terminal=True, color_system=None)) as progress:
        work = progress.begin("evaluating heldout at step 5000", 158_400)
        work.update(12_000, "accepted 0.123, and a note that has no room any more")
    display = Display(Console(file=out, width=80))
    seconds = {"step": 12_345.6, "generate": 10_123.4, "train": 2_222.2}
    record = {"step": 5000, "reward/mean": 0.7, "length/mean": 8192.0, "time": seconds}
    display.on_step({**record, "group/trained": 256, "group/sampled": 256}, 5000)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", out.getvalue()).replace("\r", "\n").splitlines()
    assert any("12000/158400 (8%)" in line for line in lines)
    assert any("step 5000/5000  reward 0.700" in line for line in lines)
    assert [line for line in lines if len(line.rstrip()) > 80] == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "status", "verdict"), [("print(3)", 0, "accepted"), ("print(4)", 1, "wrong_answer")]
)
def test_judge_one_tells_its_verdict_by_status_and_as_json(
    program: str, status: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.json").write_text(json.dumps(PROBLEM))
    (tmp_path / "a.py").write_text(program)
    words = ["judge", "one", str(tmp_path / "p.json"), str(tmp_path / "a.py")]
    assert main(words) == status
    assert f"\n{verdict} (score " in capsys.readouterr().out
    assert main([*words, "--json"]) == status
    judgement = json.loads(capsys.readouterr().out)
    assert (judgement["verdict"], judgement["cases"][0]["index"]) == (verdict, 0)


@pytest.mark.process
def test_judge_one_without_a_verdict_has_a_status_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checker = {"type": "python", "source": "def check(input, output, expected):\n    raise OSError\n"}
    (tmp_path / "p.json").write_text(json.dumps({**PROBLEM, "checker": checker}))
    (tmp_path / "a.py").write_text("print(3)")
    assert main(["judge", "one", str(tmp_path / "p.json"), str(tmp_path / "a.py")]) == 3
    assert "judge_error" in capsys.readouterr().out
