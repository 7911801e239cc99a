"""Environments in which an agent plays the episode. It only knows a ``base_url`` and an API key.

The agent asks the model through the gateway, which records all tokens. The environment rewards the result.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from pydantic import Field

from whetstone.core.errors import UserError
from whetstone.core.optional_packages import install_command
from whetstone.core.problem import Problem
from whetstone.core.settings import Count, NonEmpty, Positive, Section
from whetstone.core.verdict import storable
from whetstone.environments.conversation import Reply
from whetstone.environments.environment import Environment
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import Outcome, SingleTurn

if TYPE_CHECKING:
    # It needs the extra `serve`.
    from whetstone.environments.gateway import Gateway, Session

_LOG = logging.getLogger(__name__)
_MOST_REPORTED = 10


class AgentOptions(Section):
    """The limits of an episode, and the rewards of an agent that fails.

    calls: the most replies that an agent may request.
    prompt_tokens: the prompt tokens of all requests together, after which no more are answered.
    deadline_s: the longest time for the agent, in seconds.
    failed_reward: the reward if the agent raises an error or exceeds the deadline after a reply of the model.
        None leaves the episode out of the training, but then the model can choose: a reply on which the agent
        fails costs nothing. An agent that fails before the first reply never gets a reward.
    limit_reward: the same if it fails after one of the limits refused a request. Here the model's replies
        were too many or too long.
    """

    calls: Annotated[int, Field(ge=1, le=1024)] = 16
    prompt_tokens: Count = 1_000_000
    deadline_s: Positive = 600.0
    failed_reward: float | None = 0.0
    limit_reward: float | None = 0.0


class AgentEnvironment(Environment):
    """An episode that an agent plays. Subclasses define ``play`` and ``score``.

    Each conversation of the agent is a sample, and all samples of an episode have its reward. Their metrics
    are the numbers of ``calls`` and ``conversations``, and whether the agent failed (``agent_failed``).
    """

    Options = AgentOptions
    packages = ("starlette", "uvicorn")
    smoke_obstacle = "an agent asks its own questions, and a smoke run plants replies to the problems only"

    def __init__(self, settings: EnvironmentSection, options: AgentOptions) -> None:
        """Raises ValueError for a setting of the section that has no effect."""
        if not settings.chat:
            raise ValueError("`chat: false` has no effect on an agent, which sends messages; remove it")
        self.settings = settings
        self.limits = options
        self.turns = options.calls
        self.needs_all_cases = isinstance(settings.reward, str) and settings.reward != "all"
        self._gateway: Gateway | None = None
        self._reported: set[str] = set()

    @abstractmethod
    async def play(self, problem: Problem, episode: Episode, base_url: str, api_key: str) -> Any:
        """Run the agent and return its result.

        ``base_url`` and ``api_key`` are those of an OpenAI-compatible server, and valid until this returns.
        It is cancelled at the deadline. An exception is a failure of the agent, and ends the episode.
        """

    @abstractmethod
    async def score(self, problem: Problem, episode: Episode, result: Any) -> Outcome:
        """Return the outcome of an episode for the result of ``play``. An exception ends the run."""

    def prompt(self, problem: Problem) -> None:
        """See Environment. The agent writes the prompts."""
        return

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        """See Environment. Raises the error of a model client that fails."""
        gateway, limits = self._opened_gateway(), self.limits
        session = await gateway.open(episode, calls=limits.calls, prompt_tokens=limits.prompt_tokens)
        result, failure = None, ""
        try:
            async with asyncio.timeout(limits.deadline_s):
                result = await self.play(problem, episode, session.base_url, session.api_key)
        except TimeoutError as error:
            failure = str(error) or f"it ran longer than `deadline_s` = {limits.deadline_s:g} s"
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the run ends, and not only the agent
            failure = f"{type(error).__name__}: {error}"
        finally:
            await gateway.end(session)
        if session.error is not None:
            raise session.error
        if failure:
            self._report(failure)
        if failure or session.failure:
            outcome = self._failed(session)
        else:
            outcome = await self.score(problem, episode, result)
        metrics = {
            "calls": float(session.calls),
            "conversations": float(session.conversations),
            "agent_failed": float(bool(failure)),
        }
        samples = session.samples(outcome, metrics)
        return Rollout({self.models[0]: samples}, outcome)

    def _failed(self, session: Session) -> Outcome:
        if session.failure:
            return Outcome()  # a reply failed, which is not the model's fault, and may be why the agent did
        if not session.replied:
            return Outcome()  # the model has done nothing yet
        reward = self.limits.limit_reward if session.limit else self.limits.failed_reward
        return Outcome(reward=reward, accepted=None if reward is None else False)

    async def close(self) -> None:
        """See Environment."""
        if self._gateway is not None:
            await self._gateway.close()
            self._gateway = None

    def _opened_gateway(self) -> Gateway:
        if self._gateway is None:
            try:
                from whetstone.environments.gateway import Gateway
            except ModuleNotFoundError as error:
                raise UserError(f"agents need {error.name}: {install_command('serve')}") from None
            self._gateway = Gateway()
        return self._gateway

    def _report(self, failure: str) -> None:
        """Log a failure of the agent, once for each message."""
        failure = storable(failure)  # the model may have written it
        if failure not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add(failure)
            _LOG.warning("the agent failed: %s", failure)


class CommandOptions(AgentOptions):
    """The agent is a command. It runs with the rights of this process, and not in the sandbox.

    command: the program and its arguments.
    """

    command: Annotated[tuple[NonEmpty, ...], Field(min_length=1)]


class CommandAgent(AgentEnvironment):
    """An agent that is a command: it reads the problem from standard input, and prints its answer.

    It finds the model at ``OPENAI_BASE_URL`` with ``OPENAI_API_KEY``. The answer is rewarded like a reply of
    ``SingleTurn``. When the command ends, or at the deadline, all processes that it started are killed.
    """

    Options = CommandOptions

    def __init__(self, settings: EnvironmentSection, options: CommandOptions) -> None:
        super().__init__(settings, options)
        for name, without in (("system", None), ("prefix", ""), ("answer_format", "plain")):
            if getattr(settings, name) != without:
                raise ValueError(f"`{name}` has no effect on an agent, which writes the messages; remove it")
        self._command = options.command
        self._scoring = SingleTurn(settings)

    def check(self, problem: Problem) -> None:
        """See Environment. Raises UserError for a problem without tests, and for a command that does not
        exist."""
        self._scoring.check(problem)
        if shutil.which(self._command[0]) is None:
            raise UserError(
                f"`environment.options.command`: {self._command[0]}: no such program; give its path, or add "
                "its folder to PATH"
            )
        prompt_of(problem, self.settings)  # raises UserError for a problem that it cannot show

    async def play(self, problem: Problem, episode: Episode, base_url: str, api_key: str) -> str:
        """See AgentEnvironment."""
        environment = {**os.environ, "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": api_key}
        return await run_agent(self._command, prompt_of(problem, self.settings).user, environment)

    async def score(self, problem: Problem, episode: Episode, result: str) -> Outcome:
        """See AgentEnvironment."""
        return await self._scoring.score(episode, Reply(0, result, "stop"))


# The command runs below `agent_keeper`, which ends all processes that it started.
_KEEPER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("agent_keeper.py")))
_MOST_BYTES = 1 << 20
_ERROR_BYTES = 2000
_PART_BYTES = 64 << 10
# Seconds for the rest of the output. A process that could not be ended may keep the pipe open.
_REST_S = 5.0


class AgentFailed(Exception):
    """The command failed. The message has the end of its standard error."""


async def run_agent(command: Sequence[str], text: str, environment: Mapping[str, str]) -> str:
    """Run a command with ``text`` as its standard input, and return its standard output.

    All processes that it started are killed at the end, and when the call is cancelled. Raises AgentFailed
    for an exit code other than 0 and for more than 1 MiB of output.
    """
    out, errors = bytearray(), bytearray()
    readers: list[asyncio.Task[None]] = []
    try:
        async with _started(command, text, environment) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            # More than the limit is read too, so that the command does not wait for its reader.
            readers.append(asyncio.create_task(_read(process.stdout, out, _MOST_BYTES + 1, end=False)))
            readers.append(asyncio.create_task(_read(process.stderr, errors, _ERROR_BYTES, end=True)))
            await _wait_for_exit(process.pid)
        await asyncio.wait(readers, timeout=_REST_S)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip()
        raise AgentFailed(f"{command[0]} ended with code {process.returncode}: {said}")
    if len(out) > _MOST_BYTES:
        raise AgentFailed(f"{command[0]} printed more than {_MOST_BYTES >> 20} MiB to standard output")
    return out.decode(errors="replace")


@asynccontextmanager
async def _started(
    command: Sequence[str], text: str, environment: Mapping[str, str]
) -> AsyncGenerator[subprocess.Popen[bytes]]:
    """Return the context of a running keeper. At its end no process of the command is left."""
    process, held = _start(command, text, environment)
    try:
        yield process
    finally:
        with suppress(BrokenPipeError):  # it has ended
            os.write(held, b"\0")  # another process may have a copy of the pipe, so it may stay open
        os.close(held)
        await _wait_for_exit(process.pid)
        process.wait()


def _start(
    command: Sequence[str], text: str, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    """Return the keeper of a command, and the end of the pipe that keeps it running."""
    lifeline, held = os.pipe()
    try:
        with tempfile.TemporaryFile() as read:
            read.write(text.encode(errors="replace"))
            read.seek(0)
            process = subprocess.Popen(
                [*_KEEPER, str(lifeline), *command],
                stdin=read,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
                pass_fds=[lifeline],
            )
    except BaseException:
        os.close(held)
        raise
    finally:
        os.close(lifeline)
    return process, held


async def _wait_for_exit(pid: int) -> None:
    """Wait until a child has ended, and leave it unreaped."""
    loop, ended, descriptor = asyncio.get_running_loop(), asyncio.Event(), os.pidfd_open(pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _read(pipe: IO[bytes], into: bytearray, most: int, *, end: bool) -> None:
    """Read a pipe to its end, and keep the first or, with ``end``, the last ``most`` bytes."""
    reader = asyncio.StreamReader(limit=_PART_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while part := await reader.read(_PART_BYTES):
            into += part if end else part[: most - len(into)]
            if end:
                del into[:-most]
    finally:
        transport.close()
