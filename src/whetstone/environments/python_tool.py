"""The tool ``python``: code in a session of its own for each episode, in a sandbox."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

from whetstone.environments.tool import Tool, ToolError, ToolFault, ToolSession
from whetstone.judge.environments.environment import check_reachable, environment_named
from whetstone.judge.environments.preload import python_profile
from whetstone.judge.options import HASH_SEED
from whetstone.sandbox import PythonSession, PythonSessions, SandboxFault, SessionLimits, Tier

# Characters of a result that do not show output: how much was omitted, and why the session ended.
_NOTES_CHARS = 250
_USED, _SESSION = "cpu_s", "session"


class PythonTool(Tool):
    """Runs Python code in a session that lasts until the end of the episode.

    If a limit or the code ends the session, the next call begins a new one.
    """

    name = "python"
    description = (
        "Runs Python code and returns what it prints, and the value of the last expression. Variables, "
        "functions and files stay until the next call. There is no network and no input."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "the Python code to run"}},
        "required": ["code"],
        "additionalProperties": False,
    }
    # The session has limits of its own. This is for a machine that is overloaded.
    timeout_s = 3600.0

    def __init__(self) -> None:
        self._opening = asyncio.Lock()
        self._sessions: PythonSessions | None = None

    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        """See Tool."""
        limits, state = session.limits, session.state
        if state.setdefault(_USED, 0.0) >= limits.episode_cpu_s:
            raise ToolError(f"all calls together have used the limit of {limits.episode_cpu_s:g} CPU seconds")
        try:
            python: PythonSession | None = state.get(_SESSION)
            if python is None or not python.alive:
                sessions = await self._started(session)
                python = await session.resources.enter_async_context(await sessions.open())
                state[_SESSION] = python
            result = await python.run(arguments["code"])
        except SandboxFault as fault:
            raise ToolFault(f"tool `python`: {fault}") from None
        state[_USED] += result.cpu_s
        if result.alive:
            return result.text
        return f"{result.text}\nVariables and files are lost. The next call begins a new session."

    async def _started(self, session: ToolSession) -> PythonSessions:
        """Return the sessions of all episodes. Raises SandboxUnavailable, and UserError for packages that
        code cannot use."""
        async with self._opening:
            if self._sessions is None:
                limits = session.limits
                packages = environment_named(limits.packages)
                sessions = PythonSessions(
                    minimum_tier=Tier[session.episode.program_judge.minimum_tier.upper()],
                    limits=SessionLimits(
                        cpu_s=limits.cpu_s,
                        total_cpu_s=limits.episode_cpu_s,
                        memory_bytes=limits.memory_mb << 20,
                        text_bytes=limits.output_chars - _NOTES_CHARS,
                        wall_s=10 * limits.cpu_s + 10,
                    ),
                    profile=replace(python_profile(packages), hash_seed=HASH_SEED),
                )
                await sessions.__aenter__()
                self._sessions = sessions
                assert sessions.tier is not None
                check_reachable(packages, sessions.tier.label)
            return self._sessions

    async def close(self) -> None:
        """End all sessions."""
        sessions, self._sessions = self._sessions, None
        if sessions is not None:
            await sessions.close()
