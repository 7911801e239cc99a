"""A pool of runner processes. Each has a thread, and runs one program at a time.

A runner that dies is replaced, and its program runs once more: it may not be the cause. A cancelled program
is ended with its runner.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from whetstone.judge.environments.environment import environment_named
from whetstone.judge.values import WireError
from whetstone.judge.workers.process import ChildProcess
from whetstone.judge.workers.wire import LinkClosed, Setup, pack, receive, send, unpack
from whetstone.sandbox import Tier
from whetstone.service.runner.tasks import Ran, RunTask

# The time that compilers and a busy machine may add to the limit of a program.
_SLACK_S = 240.0
# The sandbox extends the wall limit of a program that gets no core, up to this many times (`MOST_STARVED`).
_WALL_FACTOR = 6
_TRIES = 2


class Runners:
    """Runs tasks on up to ``size`` processes. Thread-safe."""

    def __init__(self, size: int, isolation: str, environment: str | None) -> None:
        """``isolation`` is the tier of the sandboxes, ``environment`` that of the judge."""
        tier = Tier[isolation.upper()]
        self._setup = Setup(tier, tier, environment_named(environment))
        self._threads = ThreadPoolExecutor(size, "runner")
        self._own = threading.local()  # the runner of each thread, as ``process``
        self._lock = threading.Lock()
        self._processes: set[ChildProcess] = set()
        self._closed = False

    def submit(self, task: RunTask) -> Future[Ran]:
        """Queue a task. ``cancel`` on the future ends it, queued or running. Raises
        RuntimeError if closed."""
        future: Future[Ran] = Future()
        self._threads.submit(self._serve, task, future)
        return future

    def close(self) -> None:
        """End the runners and their programs."""
        with self._lock:
            self._closed = True
            processes = list(self._processes)
        for process in processes:
            process.hang_up()
        self._threads.shutdown(cancel_futures=True)
        for process in processes:
            process.close()

    def _serve(self, task: RunTask, future: Future[Ran]) -> None:
        ran = self._run(task, future)
        if not future.done():
            future.set_result(ran)

    def _run(self, task: RunTask, future: Future[Ran]) -> Ran:
        fault = "the request was cancelled"
        for _ in range(_TRIES):
            if future.done() or self._closed:
                break
            try:
                process = self._started()
                future.add_done_callback(partial(_end_if_cancelled, process))
                send(process.channel, pack(task), _SLACK_S)
                return unpack(receive(process.channel, task.wall_s * _WALL_FACTOR + _SLACK_S), Ran)
            # The process may have been killed with its program. The loop tries once more with a new process.
            except (LinkClosed, WireError, OSError) as error:
                fault = f"the runner ended: {error}"
                self._end_process()
        return Ran(fault=fault)

    def _started(self) -> ChildProcess:
        """Return the runner of this thread. Raises LinkClosed if the pool is closed."""
        process: ChildProcess | None = getattr(self._own, "process", None)
        if process is None:
            with self._lock:
                if self._closed:
                    raise LinkClosed("the runners are closed")
                process = ChildProcess("whetstone.service.runner.main", self._setup)
                self._processes.add(process)
            self._own.process = process
        return process

    def _end_process(self) -> None:
        process: ChildProcess | None = getattr(self._own, "process", None)
        if process is not None:
            process.close()
            with self._lock:
                self._processes.discard(process)
            self._own.process = None


def _end_if_cancelled(process: ChildProcess, future: Future[Ran]) -> None:
    if future.cancelled():
        process.hang_up()
