"""Sessions with small limits, and what tests see of their processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.processes import descendants
from whetstone.sandbox import PythonSession, PythonSessions, SessionLimits, SessionResult, Tier

SMALL = SessionLimits(
    cpu_s=2.0,
    total_cpu_s=20.0,
    memory_bytes=200 << 20,
    output_bytes=1 << 20,
    text_bytes=2000,
    wall_s=30.0,
)


def started(tier: Tier, limits: SessionLimits = SMALL) -> PythonSessions:
    """Sessions whose first sandbox runs. The caller closes them."""
    sessions = PythonSessions(tier=tier, limits=limits)
    asyncio.run(sessions.__aenter__())
    return sessions


def played(sessions: PythonSessions, *codes: str) -> list[SessionResult]:
    """The results of these calls of one session."""

    async def play() -> list[SessionResult]:
        async with await sessions.open() as session:
            return [await session.run(code) for code in codes]

    return asyncio.run(play())


def server_of(session: PythonSession) -> int:
    """The first process of its fork-server."""
    return session._sandbox._server._process.pid


def processes_of(session: PythonSession) -> set[int]:
    """The living processes of a session, without those of its fork-server."""
    server = server_of(session)
    return {pid for pid in descendants(server) if int(fields_of(pid)[1]) != server}


def fields_of(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
