"""Agents on repository tasks: they know a model's address and a shell, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.environments.agents import Numbered
from tests.environments.repositories import only_problem, play, section
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.core.sample import Sample
from whetstone.sandbox import SandboxFault, Workspace

pytestmark = pytest.mark.process

# Knows the address of a model and a shell. A reply is a command, and `exit` ends it.
AGENT = """import json, os, subprocess, sys, urllib.request

messages = [{"role": "user", "content": sys.stdin.read()}]
for _ in range(20):
    body = json.dumps({"model": "any", "messages": messages}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request) as response:
        message = json.load(response)["choices"][0]["message"]
    messages.append({"role": "assistant", "content": message["content"]})
    if message["content"] == "exit":
        break
    shell = [os.environ["WHETSTONE_SHELL"], "-c", message["content"]]
    done = subprocess.run(shell, capture_output=True, text=True)
    messages.append({"role": "user", "content": f"{done.stdout}[{done.returncode}]"})
"""
REPAIR = "sed -i 's/number > value/number >= value/' src/roman/convert.py"


def run_agent(folders: tuple[Path, Path], place: Path, source: str, *replies: str, **options: Any) -> Sample:
    """The last sample of an episode of an agent that is a Python program."""
    file = place / "agent.py"
    file.write_text(source)
    said = iter(replies)
    engine = Numbered(lambda text, index: next(said))
    command = [sys.executable, str(file)]
    settings = section(folders[1], kind="repository_agent", command=command, **options)
    return play(settings, only_problem(folders[0]), engine=engine)


def test_an_agent_repairs_a_code_base_through_its_shell(folders: tuple[Path, Path], tmp_path: Path) -> None:
    replies = [
        "cat README.md; exit 3",
        REPAIR,
        "python3 -m pytest -q tests",
        "echo 'é' >&2; kill -9 $$",
        "exit",
    ]
    sample = run_agent(folders, tmp_path, AGENT, *replies)
    told = [text for role, text in sample.dialogue if role == "user"]
    assert told[0] == "Roman numerals.\n[exit code 3]\n[3]"
    assert told[1:2] == ["[0]"]
    assert told[3] == "é\n[ended by signal 9]\n[137]"
    assert (sample.reward, sample.accepted) == (1.0, True)
    assert sample.judgement is not None
    wanted = {"commands": 4.0, "test_runs": 1.0, "patch_lines": 2.0, "calls": 5.0, "agent_failed": 0.0}
    assert {name: sample.metrics[name] for name in wanted} == wanted


ENDS: dict[str, tuple[str, list[str], float | None]] = {
    "no change": (AGENT, ["exit"], 0.0),
    "a wrong repair": (AGENT, ["rm src/roman/convert.py", "exit"], 0.0),
    "a failure after a reply": (AGENT.replace("break", "sys.exit(1)"), [REPAIR, "exit"], 0.0),
    "a failure before a reply": ("raise ValueError", [], None),
    "a command that is too long": (AGENT, ["x" * 200_000, REPAIR, "exit"], 1.0),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_an_agent_earns(end: str, folders: tuple[Path, Path], tmp_path: Path) -> None:
    source, replies, reward = ENDS[end]
    assert run_agent(folders, tmp_path, source, *replies).reward == reward


def test_a_failure_of_the_sandbox_gives_no_reward(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Workspace.run

    def run(self: Workspace, argv: list[str], **more: Any) -> Any:
        if "fail" in argv:
            self._failed = "broken"
            raise SandboxFault("broken")
        return whole(self, argv, **more)

    monkeypatch.setattr(Workspace, "run", run)
    sample = run_agent(folders, tmp_path, AGENT, "fail", REPAIR, "exit")
    assert (sample.reward, sample.accepted) == (None, None)
    assert "[125]" in sample.text or any("[125]" in text for _, text in sample.dialogue)


def test_the_shell_reads_a_script_and_ends_with_the_episode(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    source = f"""import os, subprocess
shell = os.environ["WHETSTONE_SHELL"]
done = subprocess.run([shell], input={REPAIR!r}, text=True)
assert done.returncode == 0
assert subprocess.run([shell, "-lc", "exit 7"]).returncode == 7
assert os.stat(os.path.dirname(shell)).st_mode & 0o77 == 0
open({str(tmp_path / "shell")!r}, "w").write(shell)
"""
    sample = run_agent(folders, tmp_path, source)
    shell = (tmp_path / "shell").read_text()
    assert not Path(shell).exists()
    assert sample.reward is None or sample.reward == 1.0


def test_wrong_settings_are_refused(problem: Problem, folders: tuple[Path, Path]) -> None:
    environment = section(folders[1], kind="repository_agent", command=["no-such-program"]).build()
    with pytest.raises(UserError, match="no such program"):
        environment.check(problem)
    with pytest.raises(UserError, match="is no repository task"):
        section(folders[1], kind="repository_agent", command=["sh"]).build().check(
            Problem("p", "s", problem.tests)
        )
