"""Python sessions for asyncio: processes that run one piece of code after another and keep their state.

    async with PythonSessions(minimum_tier=Tier.USERNS) as sessions:
        async with await sessions.open() as session:
            result = await session.run("x = 6 * 7\\nx")  # result.text is "42\\n"

A session is a run of a sandbox, with its isolation and limits. Each open session has a fork-server of its own
(about 25 MB of memory), which the next session takes over. At most ``workers`` sessions compute at a time.
Between calls the processes of a session are frozen or stopped, and they are still measured: a session that
exceeds a limit then ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox.client import Sandbox
from whetstone.sandbox.job import RunLimits, SandboxFault, SandboxJob, Tier
from whetstone.sandbox.session_run import SessionLimits, SessionResult, SessionRun
from whetstone.sandbox.streams import link_to_program
from whetstone.sandbox.zygote.profile import PYTHON, Profile

_HARNESSES = {"session": Path(__file__).parent / "zygote" / "run_session.py"}
_REMEDY = "; open fewer at a time, or raise the limit on open files (each needs 15)"
_WATCH_PERIOD_S = 0.1
# With many sessions the watch measures less often, so that it uses at most this part of a core.
_LARGEST_WATCH_SHARE = 0.02
_Result = TypeVar("_Result")


class _SessionSandbox(Sandbox):
    """A sandbox for one session at a time, whose call another thread can stop."""

    def __init__(self, profile: Profile, tier: Tier | None, minimum: Tier) -> None:
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.lock = threading.Lock()
        """Held by the thread that uses the session."""
        self._session: SessionRun | None = None
        try:
            super().__init__(_HARNESSES, profile=profile, tier=tier, minimum_tier=minimum, stop_fd=self._stop)
        except BaseException:
            os.close(self._stop)
            raise

    def start_session(self, limits: SessionLimits) -> SessionRun:
        """Start a session. Raises SandboxFault, OSError."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._stop)
        own_end, program_end = link_to_program()
        bounds = RunLimits(limits.total_cpu_s, limits.memory_bytes, limits.output_bytes)
        try:
            with program_end:
                run = self.start_as(SessionRun, SandboxJob("session", b"", bounds, link=program_end.fileno()))
                program_end.detach()  # the sandbox closed it once the child had it
        except BaseException:
            own_end.close()
            raise
        run.connect(own_end, limits)
        self._session = run
        return run

    def watch(self) -> None:
        """Measure the session, unless it is being called."""
        if self.lock.acquire(blocking=False):
            try:
                if self._session is not None:
                    self._session.watch()
            finally:
                self.lock.release()

    def stop(self) -> None:
        """End the current call, or the next one of this session. Thread-safe until ``close``."""
        os.eventfd_write(self._stop, 1)

    def close(self) -> None:
        """End the fork-server and its session. Call once."""
        with self.lock:
            self._session = None
            super().close()
            os.close(self._stop)


class _SessionWatch:
    """A thread that measures sessions between their calls, so that limits hold then too.

    It ends with the owner of the sandboxes, which it does not keep alive.
    """

    def __init__(self, sandboxes: Callable[[], Sequence[_SessionSandbox]]) -> None:
        """``sandboxes`` is a method of the owner and returns those that exist now."""
        self._sandboxes = weakref.WeakMethod(sandboxes)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread unless it runs. Not thread-safe."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="session-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        wait_s = _WATCH_PERIOD_S
        while not self._stopped.wait(wait_s):
            # As long as this method object lives, the owner cannot be finalized, which would need the locks
            # of the sandboxes.
            if (sandboxes := self._sandboxes()) is None:
                return
            began = time.thread_time()
            for sandbox in sandboxes():
                sandbox.watch()
            wait_s = max(_WATCH_PERIOD_S, (time.thread_time() - began) / _LARGEST_WATCH_SHARE)
            del sandboxes

    def stop(self) -> None:
        """End the thread, which may still measure one round."""
        self._stopped.set()


class PythonSessions:
    """Opens sessions, and owns their sandboxes."""

    def __init__(
        self,
        *,
        minimum_tier: Tier = Tier.RESTRICTED,
        tier: Tier | None = None,
        limits: SessionLimits | None = None,
        profile: Profile = PYTHON,
        workers: int = 0,
    ) -> None:
        """``tier`` requires exactly that isolation tier; None takes the strongest that works. ``profile``
        states what programs may read and import. ``workers``: how many sessions may compute at a time; 0
        means one for each core."""
        self.limits = limits or SessionLimits()
        self._profile, self._minimum = profile, minimum_tier
        self.tier = tier
        """The isolation tier of all sessions. None until it is known."""
        workers = workers or len(os.sched_getaffinity(0))
        self._callers = ThreadPoolExecutor(workers, "session-call")
        # Separate threads, because calls may occupy all of the others for long.
        self._openers = ThreadPoolExecutor(workers, "session-open")
        self._lock = threading.Lock()
        self.closed = False
        self._sandboxes: set[_SessionSandbox] = set()
        self._idle: list[_SessionSandbox] = []
        self._watch = _SessionWatch(self._all_sandboxes)
        # For sessions that are never closed. A thread that calls them has a reference to this object.
        self._end_all = weakref.finalize(self, _end_all, os.getpid(), self._sandboxes, self._watch)

    async def open(self) -> PythonSession:
        """Open a session. Raises SandboxFault if the sandbox fails, and RuntimeError once closed.

        This takes milliseconds if a sandbox is idle, and a fraction of a second otherwise.
        """
        self._require_open()
        opened = self._openers.submit(self._open)
        try:
            return await asyncio.wrap_future(opened)
        except asyncio.CancelledError:
            opened.add_done_callback(_discard)
            raise

    def _open(self) -> PythonSession:
        try:
            with self._lock:
                sandbox = self._idle.pop() if self._idle else None
            sandbox = sandbox or self._new_sandbox()
            try:
                return PythonSession(self, sandbox, sandbox.start_session(self.limits))
            except BaseException:
                self.give_back(sandbox)
                raise
        except (OSError, SandboxUnavailable) as error:  # the tier has started before
            raise SandboxFault(f"no session could be opened: {error}{_REMEDY}") from None

    def _new_sandbox(self) -> _SessionSandbox:
        sandbox = _SessionSandbox(self._profile, self.tier, self._minimum)
        with self._lock:
            if not self.closed:
                self._sandboxes.add(sandbox)
                self._watch.start()
                return sandbox
        sandbox.close()
        raise RuntimeError("these sessions are closed")

    def _all_sandboxes(self) -> list[_SessionSandbox]:
        with self._lock:
            return list(self._sandboxes)

    def give_back(self, sandbox: _SessionSandbox) -> None:
        """Keep a sandbox for the next session."""
        with self._lock:
            self._idle.append(sandbox)

    async def in_thread(self, work: Callable[[], _Result], *, computes: bool) -> _Result:
        """Run ``work`` in a thread: one of those for calls, if it ``computes``."""
        self._require_open()
        threads = self._callers if computes else self._openers
        return await asyncio.wrap_future(threads.submit(work))

    def _require_open(self) -> None:
        if self.closed:
            raise RuntimeError("these sessions are closed; make new ones")

    def close_now(self) -> None:
        """End all sessions and sandboxes, and wait for that. Calls that run or wait end at once."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        for sandbox in self._sandboxes:
            sandbox.stop()
        for threads in (self._callers, self._openers):
            threads.shutdown()
        self._end_all()

    async def close(self) -> None:
        """Do the same as ``close_now``, without blocking the event loop."""
        await asyncio.to_thread(self.close_now)

    async def __aenter__(self) -> PythonSessions:
        """Start the first sandbox. Raises SandboxUnavailable if this machine does not offer the tier."""
        first = await self.in_thread(self._new_sandbox, computes=False)
        self.tier = first.tier
        self.give_back(first)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is GeneratorExit:  # the event loop is gone, so no coroutine can run
            self.close_now()
        else:
            await self.close()


class PythonSession:
    """One session. ``PythonSessions.open`` makes it."""

    def __init__(self, sessions: PythonSessions, sandbox: _SessionSandbox, run: SessionRun) -> None:
        self._sessions, self._sandbox, self._run = sessions, sandbox, run
        self._calling = self._closed = False

    @property
    def alive(self) -> bool:
        """Whether the session can run another call, as far as known."""
        return not self._run.reason

    async def run(self, code: str) -> SessionResult:
        """Run code in the session's ``__main__``, once fewer than ``workers`` sessions compute.

        Cancelling this ends the session. Raises SandboxFault if the sandbox itself failed, which is no fault
        of the code; the session is then over. Raises RuntimeError during another call.
        """
        if self._calling:
            raise RuntimeError("this session runs a call already; await its result first")
        self._calling = True
        try:
            return await self._sessions.in_thread(partial(self._call, code), computes=True)
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            self._calling = False

    def _call(self, code: str) -> SessionResult:
        with self._sandbox.lock:
            return self._run.call(code)

    async def close(self) -> None:
        """End the session with all its processes and files. A call that runs ends at once. Idempotent."""
        if self._begin_close():
            await asyncio.shield(self._sessions.in_thread(self._end, computes=False))

    def close_now(self) -> None:
        """Do the same as ``close``, blocking."""
        if self._begin_close():
            self._end()

    def _begin_close(self) -> bool:
        """Stop the current call. Returns whether the session must still be ended."""
        if self._closed or self._sessions.closed:
            return False
        self._closed = True
        self._sandbox.stop()
        return True

    def _end(self) -> None:
        with self._sandbox.lock:
            self._run.end()
        self._sessions.give_back(self._sandbox)

    async def __aenter__(self) -> PythonSession:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is GeneratorExit:  # the event loop is gone, so no coroutine can run
            self.close_now()
        else:
            await self.close()


def _discard(opened: Future[PythonSession]) -> None:
    """End a session that has no caller any more."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close_now()


def _end_all(owner: int, sandboxes: set[_SessionSandbox], watch: _SessionWatch) -> None:
    """End all sandboxes. No call may be using them."""
    if os.getpid() == owner:  # and not a fork of it
        watch.stop()
        for sandbox in sandboxes:
            sandbox.close()
