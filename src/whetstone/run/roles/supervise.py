"""Supervises processes that work together: starts them in order of readiness, restarts them, and ends them.

Their output is one log; each line has the name of its role. The first signal drains, the second stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Protocol

from msgspec import Struct, field

from whetstone.core.errors import BAD_INPUT, INTERRUPTED, UserError

_READ_BYTES = 1 << 16


class RoleProcess(Protocol):
    """A started role."""

    async def read(self) -> bytes:
        """Return the next output as soon as there is some; empty at the end."""
        ...

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal. Has no effect after the process has ended."""
        ...

    async def wait(self) -> int:
        """Wait for the exit status; negative for the signal that ended the process."""
        ...


class LocalProcess:
    """A process on this machine."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def read(self) -> bytes:
        """See RoleProcess."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(_READ_BYTES)

    def send_signal(self, number: signal.Signals) -> None:
        """See RoleProcess."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """See RoleProcess."""
        return await self._process.wait()


def role_command(role: str, file: Path, words: Sequence[str]) -> list[str]:
    """Return the command that starts a role which ends with this process."""
    own = [sys.executable, "-m", "whetstone", "role", role, str(file)]
    return [*own, *words, "--parent", str(os.getpid())]


async def start_local(
    words: Sequence[str], *, variables: Mapping[str, str] | None = None, folder: Path | None = None
) -> LocalProcess:
    """Start a command on this machine in its own session, so that Ctrl-C in the terminal does not reach it.

    variables: added to the environment. folder: the working directory; None: that of this process.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
        env={**os.environ, **(variables or {})},
        cwd=folder,
    )
    return LocalProcess(process)


DRAIN_S = 120.0
_END_S = 15.0
# The last output lines arrive after the end of the process.
_LAST_WORDS_S = 2.0
# Output lines of a role that refused its input, for the error message.
_LAST_LINES = 8
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Role(Struct, eq=False):
    """A role, and how to start it.

    is_ready: decides by an output line whether the next role can start; None: at once. ends_run: the run ends
    with this role, or with the last of several such roles. outlives_others: ends after all other roles.
    """

    name: str
    start: Callable[[], Awaitable[RoleProcess]]
    is_ready: Callable[[str], bool] | None = None
    ends_run: bool = False
    outlives_others: bool = False
    starts: int = 0
    last_lines: list[str] = field(default_factory=list[str])


class _RunningRole:
    """A role's process, with the tasks that read its output and wait for its end."""

    def __init__(self, role: Role, process: RoleProcess, on_line: Callable[[str, str], None]) -> None:
        self.role, self.process = role, process
        self.ready = asyncio.Event()
        if role.is_ready is None:
            self.ready.set()
        self._on_line = on_line
        self._reading = asyncio.create_task(self._read())
        self.ended = asyncio.create_task(self._end())

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def _end(self) -> int:
        status = await self.process.wait()
        # A child of the process may keep the output open, so the wait for its end is limited.
        await asyncio.wait([self._reading], timeout=_LAST_WORDS_S)
        self._reading.cancel()
        return status

    async def _read(self) -> None:
        rest = b""
        while data := await self.process.read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._handle_line(line)
        if rest:
            self._handle_line(rest)

    def _handle_line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if not text:
            return
        if self.role.is_ready is not None and not self.ready.is_set() and self.role.is_ready(text):
            self.ready.set()
        self.role.last_lines = [*self.role.last_lines, text][-_LAST_LINES:]
        self._on_line(self.role.name, text)


class Supervisor:
    """Runs ``roles``, started in this order, until those with ``ends_run`` have ended.

    restarts: how often each role is restarted after it died. on_line: called with every output line of a
    role. log: called when the state of a role changes.
    """

    def __init__(
        self,
        roles: Sequence[Role],
        *,
        restarts: int,
        on_line: Callable[[str, str], None],
        log: Callable[[str], None],
        drain_s: float = DRAIN_S,
    ) -> None:
        self._roles, self._restarts, self._log, self._drain_s = roles, restarts, log, drain_s
        self._on_line = on_line
        self._running: dict[str, _RunningRole] = {}
        self._signals = 0
        self._signalled = asyncio.Event()

    async def run(self) -> int:
        """Return the status of the run: 0, or 130 if a signal stopped it.

        Raises UserError with the last output of a role that refused its input, or died too often.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            return await self._run()
        except UserError:
            await self._end_all(at_once=True)
            raise
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
            for running in self._running.values():
                running.send_signal(signal.SIGKILL)

    async def _run(self) -> int:
        for role in self._roles:
            await self._start(role)
            await self._restart_ended()
        while (status := self._status()) is None:
            ends = [running.ended for running in self._running.values() if not running.ended.done()]
            news = asyncio.create_task(self._signalled.wait())
            await asyncio.wait([*ends, news], return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            self._signalled.clear()
            await self._restart_ended()
        await self._end_all(at_once=self._signals == 0)
        return INTERRUPTED if self._signals else status

    def _on_signal(self) -> None:
        self._signals += 1
        self._signalled.set()
        if self._signals > 1:
            self._log("ending now")
            for running in self._running.values():
                running.send_signal(signal.SIGKILL)
            return
        self._log("draining: the current step and prompts will be finished; Ctrl-C again stops at once")
        for running in self._running.values():
            # The flow must answer until the replicas and trainers have finished their work.
            if not running.role.outlives_others:
                running.send_signal(signal.SIGTERM)

    def _status(self) -> int | None:
        """Return the status of the roles with ``ends_run``; None until all have ended."""
        if self._signals > 1:
            return INTERRUPTED
        leading = [self._running.get(role.name) for role in self._roles if role.ends_run]
        ends = [each.ended.result() for each in leading if each is not None and each.ended.done()]
        # Another process stopped this role, and the other roles would wait for it.
        if not self._signals and INTERRUPTED in ends:
            return INTERRUPTED
        if len(ends) < sum(each is not None or not self._signals for each in leading):
            return None
        if not ends:
            return INTERRUPTED
        return next((status for status in ends if status), 0) if self._signals or not any(ends) else None

    def _run_finished(self) -> bool:
        """Return whether a role with ``ends_run`` has finished."""
        leading = [running for running in self._running.values() if running.role.ends_run]
        return any(each.ended.done() and each.ended.result() == 0 for each in leading)

    async def _start(self, role: Role) -> None:
        """Start a role, and wait until it is ready or has ended."""
        if self._signals:
            return
        role.starts += 1
        running = self._running[role.name] = _RunningRole(role, await role.start(), self._on_line)
        ready = asyncio.create_task(running.ready.wait())
        await asyncio.wait([ready, running.ended], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()

    async def _restart_ended(self) -> None:
        """Handle ended roles, and restart those that died."""
        for running in list(self._running.values()):
            role = running.role
            if not running.ended.done() or self._signals or self._status() is not None:
                continue
            status = running.ended.result()
            if role.ends_run and status == 0:
                # Another role with `ends_run` has not finished.
                continue
            # After the last step, a replica that dies is not needed any more.
            if not role.ends_run and not role.outlives_others and self._run_finished():
                self._log(f"{role.name} has ended; it is not needed any more")
                del self._running[role.name]
                continue
            # A restart would refuse the same input.
            if status == BAD_INPUT:
                self._fail(f"the {role.name} role refuses", role)
            if status == 0 and not role.outlives_others:
                self._log(f"{role.name} has ended; the other roles continue")
                del self._running[role.name]
                continue
            how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
            if role.starts > self._restarts:
                self._fail(f"{role.name} ended {how}, for the {role.starts}. time (`flow.restarts`)", role)
            self._log(f"{role.name} ended {how}; restarting ({role.starts} of {self._restarts})")
            await self._start(role)

    def _fail(self, reason: str, role: Role) -> NoReturn:
        raise UserError("\n".join([reason, *role.last_lines]))

    async def _end_all(self, *, at_once: bool) -> None:
        """End all roles; those with ``outlives_others`` last."""
        others = [running for running in self._running.values() if not running.role.outlives_others]
        if at_once:
            for running in others:
                # The second signal stops a role at once, since the results are not needed any more.
                for number in _SIGNALS:
                    running.send_signal(number)
        await self._wait_for_end(others, _END_S if at_once else self._drain_s)
        staying = [running for running in self._running.values() if running.role.outlives_others]
        for running in staying:
            running.send_signal(signal.SIGTERM)
        await self._wait_for_end(staying, _END_S)

    async def _wait_for_end(self, running: Sequence[_RunningRole], within_s: float) -> None:
        if not running:
            return
        _, late = await asyncio.wait([each.ended for each in running], timeout=within_s)
        for each in running:
            if each.ended in late:
                self._log(f"{each.role.name} has not ended within {within_s:.0f} s; killing it")
                each.send_signal(signal.SIGKILL)
        await asyncio.wait([each.ended for each in running])
