"""A function of another project as the target of an exam, in processes of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import cast

import whetstone
import whetstone_exam
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program
from whetstone_exam.exam.host_process import HostProcess
from whetstone_exam.exam.protection import NO_PROTECTION, PROTECTION, check_protection, protected
from whetstone_exam.exam.targets import Answer
from whetstone_exam.load.footprint import Process, process_tree

# Importing another project may take long.
_START_S = 180.0
_PROGRAMS_OF_A_PROCESS = 200


class CallableTarget:
    """``module:function(problem, program) -> bool | float``; a score of 1 counts as accepted.

    It runs in ``workers`` processes of ``python``, each of which judges one program at a time, with at most
    ``timeout_s`` seconds for each. An exception, a death and a missing answer are no verdict. After the last
    two the process is replaced, also after it wrote anything but its answers, and after 200 programs, so that
    its leaks do not decide about others. ``failure``: a failure of the machine that happens to each process
    (``failures.py``).
    """

    sandboxed = False

    def __init__(
        self,
        function: str,
        *,
        python: str = "",
        workers: int = 1,
        timeout_s: float = 60.0,
        unprotected: bool = False,
        failure: str = "",
    ) -> None:
        self.name = function
        self.protection = NO_PROTECTION if unprotected else PROTECTION
        self._command = [python or sys.executable, "-m", "whetstone_exam.exam.callable_host", function]
        self._timeout_s = timeout_s
        self._folder = tempfile.mkdtemp(prefix="whetstone-exam-")
        self._unprotected = unprotected
        self._failure = failure
        self._hosts = threading.local()
        self._all: list[HostProcess] = []
        self._pool = ThreadPoolExecutor(workers, "exam")
        try:
            if not unprotected:
                check_protection(self._folder)
            # A function that cannot be imported is found before the first item.
            version = self._pool.submit(self._host).result().version
        except BaseException:
            self.close()
            raise
        if version:
            self.name = f"{function} ({version})"

    def submit(self, problem: Problem, program: Program) -> Future[Answer]:
        """See ExamTarget."""
        return self._pool.submit(self._judge, problem, program)

    def processes(self) -> list[Process] | None:
        """See ExamTarget."""
        return process_tree([host.pid for host in self._all if host.running], zombies=True)

    def temporary_files(self) -> int:
        """See ExamTarget. Only those of the processes that run at present are counted."""
        # A process with namespaces of its own has a folder of its own.
        innermost = [process_tree([host.pid])[-1][0] for host in self._all if host.running]
        folders = {f"/proc/{pid}/root{self._folder}" for pid in innermost}
        return sum(len(names) for folder in folders for _, *both in os.walk(folder) for names in both)

    def close(self) -> None:
        """See ExamTarget."""
        self._pool.shutdown(cancel_futures=True)
        for host in self._all:
            host.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _judge(self, problem: Problem, program: Program) -> Answer:
        host = self._host()
        host.programs += 1
        began = time.monotonic()
        answer = host.ask({"problem": problem, "program": program}, self._timeout_s)
        if answer is None:
            died = host.stop()
            self._hosts.current = None
            return Answer(
                None, f"no answer within {self._timeout_s:g} s" if not died else "the grader's process died"
            )
        if "unsupported" in answer:
            return Answer(None, str(answer["unsupported"]), unsupported=True)
        score = answer.get("score")
        if not isinstance(score, float):
            return Answer(None, str(answer.get("error", answer))[:500])
        return Answer(score >= 1, f"score {score:g}", seconds=time.monotonic() - began)

    def _host(self) -> HostProcess:
        """Return this thread's process, and start one if there is none."""
        host = cast("HostProcess | None", getattr(self._hosts, "current", None))
        if host is not None and (host.programs >= _PROGRAMS_OF_A_PROCESS or host.has_strayed()):
            host.stop()
            host = None
        if host is None:
            host = self._hosts.current = self._start()
        return host

    def _start(self) -> HostProcess:
        read, write = os.pipe()
        command = [*self._command, str(write), os.getcwd(), self._failure]
        if not self._unprotected:
            needed = [command[0], os.getcwd(), *_import_path().split(os.pathsep)]
            command = protected(command, self._folder, needed)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[write],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": _import_path()},
            )
        finally:
            os.close(write)
        host = HostProcess(process, read)
        self._all.append(host)
        ready = host.read(_START_S)
        if ready is None or not ready.get("ready"):
            died = host.stop()
            reason = (ready or {}).get("error") or (
                host.errors() if died else f"not ready after {_START_S:g} s"
            )
            raise UserError(
                f"{self.name} cannot be examined: {reason}; give module:function, from the current folder or "
                "installed for --python"
            )
        host.version = str(ready.get("version", ""))
        return host


def _import_path() -> str:
    """Return PYTHONPATH with both packages, which the interpreter of another project need not have."""
    own = [str(Path(package.__file__ or "").parents[1]) for package in (whetstone, whetstone_exam)]
    return os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH", "")])])
