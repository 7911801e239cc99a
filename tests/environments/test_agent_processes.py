"""The command of an agent and the processes that it starts: none of them is left after the episode."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environments.agents import Numbered, group_of
from tests.environments.test_agent import PROBLEM, command, judged
from whetstone.environments.agent import AgentFailed, CommandAgent, run_agent
from whetstone.environments.settings import EnvironmentSection
from whetstone.judge import AsyncJudge

pytestmark = pytest.mark.process


async def cancelled_when(section: EnvironmentSection, is_ready: Callable[[], bool]) -> None:
    """Play an episode, and cancel it."""
    environment = section.build()
    assert isinstance(environment, CommandAgent)

    def wait() -> None:
        while not is_ready() and not task.done():
            time.sleep(0.05)

    async with AsyncJudge(1) as judge:
        task = asyncio.create_task(group_of(environment, Numbered(), judge=judge, problem=PROBLEM))
        await asyncio.to_thread(wait)
        task.cancel()
        await asyncio.wait([task])


# Each begins `sleep`, as a process of another place in the tree. A process that execs keeps ignored signals.
LEAVES = {
    "child": "Popen(SLEEP)",
    "session": "Popen(SLEEP, start_new_session=True)",
    "group": "Popen(SLEEP, process_group=0)",
    "daemon": "python('os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); ' + EXEC)",
    "daemon without output": "python('os.fork() and os._exit(0); os.setsid(); ' + EXEC, stdout=DEVNULL)",
    "grandchild": "python('os.fork() and time.sleep(3600); ' + EXEC)",
    "stopped": "os.kill(Popen(SLEEP, start_new_session=True).pid, 19)",
    "without environment": "Popen(SLEEP, env={}, start_new_session=True)",
    "ignores signals": "python('[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; ' + EXEC)",
}
LEAVING = """
    import os, sys, time
    from subprocess import DEVNULL, Popen
    SLEEP = ["/bin/sleep", {token!r}]
    EXEC = f"os.execv('/bin/sleep', {{SLEEP}})"

    def python(code, **more):
        Popen([sys.executable, "-c", "import os, signal, time; " + code], start_new_session=True, **more)

    def begun():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if open(f"/proc/{{pid}}/cmdline").read().split(chr(0))[:2] == SLEEP:
                    return True
            except OSError:
                continue

    {leaves}
    while not begun():
        time.sleep(0.02)
    open({note!r}, "w").close()
"""


def running(token: str) -> list[int]:
    """The processes with this word in their command."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and token in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.drawn(9)
@pytest.mark.parametrize("leaves", LEAVES.values(), ids=LEAVES)
@pytest.mark.parametrize("end", ["by itself", "cancelled", "with its caller"])
def test_no_process_of_a_command_is_left(tmp_path: Path, leaves: str, end: str) -> None:
    """Not when it has ended, not when it is stopped, as at the deadline, and not when this process ends."""
    token = f"3600.{uuid.uuid4().int % 10**12:012}"
    note = tmp_path / "note"
    source = LEAVING.format(token=token, leaves=leaves, note=str(note))
    section = command(tmp_path, source + ("" if end == "by itself" else "    time.sleep(3600)\n"))
    if end == "by itself":
        asyncio.run(judged(section, Numbered()))
    elif end == "cancelled":
        asyncio.run(cancelled_when(section, note.exists))
    else:
        caller = tmp_path / "caller.py"
        caller.write_text(
            "import asyncio, os\nfrom whetstone.environments.agent import run_agent\n"
            f"asyncio.run(run_agent({[sys.executable, str(tmp_path / 'agent.py')]!r}, '', os.environ))\n"
        )
        with subprocess.Popen([sys.executable, str(caller)]) as process:
            while not note.exists() and process.poll() is None:
                time.sleep(0.02)
            process.kill()
    assert note.exists()
    deadline = time.monotonic() + (60 if end == "with its caller" else 0)
    while running(token) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(token)


def test_the_log_has_one_line_for_the_output_of_a_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    section = command(tmp_path, r"import sys; sys.exit('a\x1b[2Jb\nWARNING c\r' + 'd' * 1000)")
    asyncio.run(judged(section, Numbered()))
    [message] = [record.getMessage() for record in caplog.records if "agent failed" in record.getMessage()]
    assert message.isprintable()
    assert len(message) < 700


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with code 139"),
        ("import sys; sys.exit('no luck')", "ended with code 1: no luck"),
        ("import os; os.setsid() if os.fork() else os._exit(0)", "PermissionError"),
    ],
)
def test_the_failure_of_a_command_is_described(tmp_path: Path, source: str, said: str) -> None:
    program = tmp_path / "agent.py"
    program.write_text(source)
    with pytest.raises(AgentFailed, match=said):
        asyncio.run(run_agent([sys.executable, str(program)], "", os.environ))
    with pytest.raises(AgentFailed, match="no-such-agent: No such file"):
        asyncio.run(run_agent(["no-such-agent"], "", os.environ))
