"""An agent of any kind works on a repository task: it knows a model's address and a shell."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.environments.agent import CommandAgent, CommandOptions, run_agent
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.repository import scored, task_text
from whetstone.environments.repository_work import (
    Repositories,
    RepositoryLimits,
    RepositoryWork,
    current_work,
    working,
)
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import Outcome
from whetstone.environments.tool import ToolError, ToolFault

_CLIENT = Path(__file__).with_name("repository_shell.py")
_MOST_BYTES = 1 << 20
# The path of a Unix socket has at most 107 bytes.
_LONGEST_FOLDER = 80


class RepositoryAgentOptions(CommandOptions, RepositoryLimits):
    """The agent is a command. It runs with the rights of this process, and its shell in the sandbox.

    command: the program and its arguments.
    """


class RepositoryAgent(CommandAgent):
    """An agent that is a command: it reads the statement from standard input, and works through a shell.

    The variable ``WHETSTONE_SHELL`` is the path of a program: ``$WHETSTONE_SHELL -c COMMAND`` runs a command
    in the workspace of the episode, prints what it prints, and ends with its exit code. The model is at
    ``OPENAI_BASE_URL``. When the agent ends, the changes are judged by the hidden tests of the task.
    """

    Options = RepositoryAgentOptions

    def __init__(self, settings: EnvironmentSection, options: RepositoryAgentOptions) -> None:
        super().__init__(settings, options)
        self._shared = Repositories(options)

    def check(self, problem: Problem) -> None:
        """See Environment. Raises UserError for a problem that is no repository task, and for a command that
        does not exist."""
        if shutil.which(self._command[0]) is None:
            raise UserError(
                f"`environment.options.command`: {self._command[0]}: no such program; give its path"
            )
        self._text(problem)

    def _text(self, problem: Problem) -> str:
        text = task_text(self.settings, problem, self._shared.task(problem))
        return prompt_of(replace(problem, statement=text), self.settings).user

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        """See Environment."""
        async with working(self._shared, problem, episode.program_judge) as work:
            rollout = await super().rollout(problem, episode)
        [(model, samples)] = rollout.samples.items()
        made = work.metrics()
        noted = [replace(sample, metrics={**sample.metrics, **made}) for sample in samples]
        return Rollout({model: noted}, rollout.state)

    async def play(self, problem: Problem, episode: Episode, base_url: str, api_key: str) -> str:
        """See AgentEnvironment."""
        async with shell_of(current_work()) as shell:
            model = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": api_key, "WHETSTONE_SHELL": shell}
            return await run_agent(self._command, self._text(problem), {**os.environ, **model})

    async def score(self, problem: Problem, episode: Episode, result: str) -> Outcome:
        """See AgentEnvironment."""
        return await scored(self.settings, problem, result)

    async def close(self) -> None:
        """See Environment."""
        await super().close()
        self._shared.close()


def _write_shell(folder: str) -> tuple[str, str]:
    """Return the paths of a socket, and of a program that sends it a command."""
    socket, program = Path(folder, "socket"), Path(folder, "shell")
    client = shlex.join([sys.executable, "-I", "-S", str(_CLIENT), str(socket)])
    program.write_text(f'#!/bin/sh\nexec {client} "$@"\n')
    program.chmod(0o700)
    return str(socket), str(program)


@asynccontextmanager
async def shell_of(work: RepositoryWork) -> AsyncGenerator[str]:
    """The path of a program that runs shell commands in a workspace, through a socket in a private folder."""
    place = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(dir=place if len(place) < _LONGEST_FOLDER else "/tmp") as folder:
        socket, program = _write_shell(folder)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                command = b""
                while len(command) < _MOST_BYTES and (part := await reader.read(1 << 16)):
                    command += part
                text, code = await _run(work, command.decode(errors="replace"))
                writer.write(f"{code}\n{text}".encode())
                await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(answer, socket)
        async with server:
            yield program


async def _run(work: RepositoryWork, command: str) -> tuple[str, int]:
    try:
        return await work.run(command)
    except ToolError as error:
        return f"whetstone: {error}", 125
    except ToolFault:
        # The episode gets no reward: the workspace refuses every later use.
        return "whetstone: the sandbox failed", 125
