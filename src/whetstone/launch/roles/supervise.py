"""Processes that work together: started in order of readiness, started again when they die, ended together.

What they say is one log: each line with the role that says it. One signal drains, a second one ends.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from msgspec import Struct, field

from whetstone.errors import BAD_INPUT, INTERRUPTED, UserError
from whetstone.launch.roles.process import Started

DRAIN_S = 120.0
_END_S = 15.0
_LAST_WORDS_S = 2.0
_SAID = 8
"""Lines of a role that has refused, in the error of the whole."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Role(Struct, eq=False):
    """A role: how it is started, each time anew.

    ready: tells by a line that it says whether the next role can be started; None: at once. leads: the run
    ends with it, or with the last one of several. stays: until all others have ended.
    """

    name: str
    start: Callable[[], Awaitable[Started]]
    ready: Callable[[str], bool] | None = None
    leads: bool = False
    stays: bool = False
    starts: int = 0
    said: list[str] = field(default_factory=list[str])


class _Running:
    """A role's process, and who reads what it says."""

    def __init__(self, role: Role, process: Started, hears: Callable[[Role, str], None]) -> None:
        self.role, self.process = role, process
        self.ready = asyncio.Event()
        if role.ready is None:
            self.ready.set()
        self._hears = hears
        self._reading = asyncio.create_task(self._read())
        self.ended = asyncio.create_task(self._end())

    def tell(self, number: signal.Signals) -> None:
        self.process.tell(number)

    async def _end(self) -> int:
        status = await self.process.wait()
        # What it started may hold its output open for longer.
        await asyncio.wait([self._reading], timeout=_LAST_WORDS_S)
        self._reading.cancel()
        return status

    async def _read(self) -> None:
        rest = b""
        while data := await self.process.read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._hear(line)
        if rest:
            self._hear(rest)

    def _hear(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if not text:
            return
        if self.role.ready is not None and not self.ready.is_set() and self.role.ready(text):
            self.ready.set()
        self.role.said = [*self.role.said, text][-_SAID:]
        self._hears(self.role, text)


class Supervisor:
    """Runs ``roles``, started in this order, until the one that leads has ended.

    restarts: how often each role is started again, when it has died. hears: told every line of a role. say:
    told what becomes of the roles.
    """

    def __init__(
        self,
        roles: Sequence[Role],
        *,
        restarts: int,
        hears: Callable[[str, str], None],
        say: Callable[[str], None],
        drain_s: float = DRAIN_S,
    ) -> None:
        self._roles, self._restarts, self._say, self._drain_s = roles, restarts, say, drain_s
        self._show = hears
        self._running: dict[str, _Running] = {}
        self._told = 0
        self._news = asyncio.Event()

    async def run(self) -> int:
        """The status of the whole: 0, or 130 where it was told to end.

        Raises UserError with the last words of a role that refuses, or that dies too often.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._tell)
        try:
            return await self._run()
        except UserError:
            await self._end_all(at_once=True)
            raise
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
            for running in self._running.values():
                running.tell(signal.SIGKILL)

    async def _run(self) -> int:
        for role in self._roles:
            await self._start(role)
            await self._look()
        while (status := self._status()) is None:
            ends = [running.ended for running in self._running.values() if not running.ended.done()]
            news = asyncio.create_task(self._news.wait())
            await asyncio.wait([*ends, news], return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            self._news.clear()
            await self._look()
        await self._end_all(at_once=self._told == 0)
        return INTERRUPTED if self._told else status

    def _hears(self, role: Role, text: str) -> None:
        self._show(role.name, text)

    def _tell(self) -> None:
        self._told += 1
        self._news.set()
        if self._told > 1:
            self._say("ending now")
            for running in self._running.values():
                running.tell(signal.SIGKILL)
            return
        self._say("draining: the step and the prompts under way are finished; Ctrl-C again ends at once")
        for running in self._running.values():
            if not running.role.stays:
                running.tell(signal.SIGTERM)

    def _status(self) -> int | None:
        """How the leading roles have ended; None before all have."""
        if self._told > 1:
            return INTERRUPTED
        leading = [self._running.get(role.name) for role in self._roles if role.leads]
        ends = [each.ended.result() for each in leading if each is not None and each.ended.done()]
        if not self._told and INTERRUPTED in ends:  # told by somebody else; the others would wait for it
            return INTERRUPTED
        if len(ends) < sum(each is not None or not self._told for each in leading):
            return None
        if not ends:
            return INTERRUPTED
        return next((status for status in ends if status), 0) if self._told or not any(ends) else None

    def _led_to_the_end(self) -> bool:
        """Whether a role that leads has done its part."""
        leading = [running for running in self._running.values() if running.role.leads]
        return any(each.ended.done() and each.ended.result() == 0 for each in leading)

    async def _start(self, role: Role) -> None:
        """Start a role, and wait until it is ready or has ended."""
        if self._told:
            return
        role.starts += 1
        running = self._running[role.name] = _Running(role, await role.start(), self._hears)
        ready = asyncio.create_task(running.ready.wait())
        await asyncio.wait([ready, running.ended], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()

    async def _look(self) -> None:
        """See who has ended, and start them again."""
        for running in list(self._running.values()):
            role = running.role
            if not running.ended.done() or self._told or self._status() is not None:
                continue
            status = running.ended.result()
            if role.leads and status == 0:
                continue  # it has done its part; another that leads has not
            if not role.leads and not role.stays and self._led_to_the_end():
                self._say(f"{role.name} has left; nobody needs it any more")
                del self._running[role.name]
                continue
            if status == BAD_INPUT:
                self._refuse(f"the {role.name} role refuses", role)
            if status == 0 and not role.stays:
                self._say(f"{role.name} has left; the others go on")
                del self._running[role.name]
                continue
            how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
            if role.starts > self._restarts:
                self._refuse(f"{role.name} ended {how}, for the {role.starts}. time (`flow.restarts`)", role)
            self._say(f"{role.name} ended {how}; it is started again ({role.starts} of {self._restarts})")
            await self._start(role)

    def _refuse(self, why: str, role: Role) -> NoReturn:
        raise UserError("\n".join([why, *role.said]))

    async def _end_all(self, *, at_once: bool) -> None:
        """Have all end: those that stay last."""
        others = [running for running in self._running.values() if not running.role.stays]
        if at_once:
            for running in others:
                for number in _SIGNALS:  # two tell to end now, and what is under way is nobody's any more
                    running.tell(number)
        await self._ended(others, _END_S if at_once else self._drain_s)
        staying = [running for running in self._running.values() if running.role.stays]
        for running in staying:
            running.tell(signal.SIGTERM)
        await self._ended(staying, _END_S)

    async def _ended(self, running: Sequence[_Running], within_s: float) -> None:
        if not running:
            return
        _, late = await asyncio.wait([each.ended for each in running], timeout=within_s)
        for each in running:
            if each.ended in late:
                self._say(f"{each.role.name} has not ended within {within_s:.0f} s, and is killed")
                each.tell(signal.SIGKILL)
        await asyncio.wait([each.ended for each in running])
