"""A service that speaks the protocol of another project as the target of an exam."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from whetstone.core.problem import Problem, Program
from whetstone_exam.exam.targets import Answer
from whetstone_exam.graders import sandbox_fusion, scalebox
from whetstone_exam.graders.forms import no_script_form
from whetstone_exam.load.footprint import Process

_MOST_BYTES = 16 << 20
# A service that fails, and an answer of another form.
_NO_VERDICT = (OSError, HTTPException, ValueError, LookupError, AttributeError, TypeError, RuntimeError)


class JudgeProtocol(Struct, frozen=True):
    """How a project's service takes a program with its tests.

    path: where requests go. unsupported: see ``Answer``. request: the message. accepted: the verdict in an
    answer; it raises RuntimeError if the service reports its own failure.
    """

    path: str
    unsupported: Callable[[Problem, Program], str]
    request: Callable[[Problem, Program], dict[str, Any]]
    accepted: Callable[[dict[str, Any]], bool]


PROTOCOLS = {
    "sandboxfusion": JudgeProtocol(
        "/run_code",
        no_script_form,
        sandbox_fusion.run_code_request,
        lambda answer: sandbox_fusion.run_succeeded(answer.get("status"), answer.get("message")),
    ),
    "scalebox": JudgeProtocol(
        "/common_evaluate_batch",
        scalebox.no_form,
        scalebox.evaluate_request,
        lambda answer: bool(answer["accepted"]),
    ),
}


class HttpTarget:
    """A service at ``url`` with at most ``workers`` requests at once.

    A status between 400 and 499 means that the service has no form for the problem. A refused connection,
    another status than 200 and an answer of another form are no verdict.
    """

    sandboxed = False
    protection = "that of the service"

    def __init__(self, name: str, url: str, protocol: JudgeProtocol, workers: int, timeout_s: float) -> None:
        self.name = name
        self._url = url.rstrip("/") + protocol.path
        self._protocol, self._timeout_s = protocol, timeout_s
        self._pool = ThreadPoolExecutor(workers, "exam")

    def submit(self, problem: Problem, program: Program) -> Future[Answer]:
        """See ExamTarget."""
        return self._pool.submit(self._judge, problem, program)

    def processes(self) -> list[Process] | None:
        """See ExamTarget. The service may run anywhere."""
        return None

    def temporary_files(self) -> int:
        """See ExamTarget."""
        return 0

    def close(self) -> None:
        """See ExamTarget."""
        self._pool.shutdown(cancel_futures=True)

    def _judge(self, problem: Problem, program: Program) -> Answer:
        if reason := self._protocol.unsupported(problem, program):
            return Answer(None, reason, unsupported=True)
        began = time.monotonic()
        body = json.dumps(self._protocol.request(problem, program)).encode()
        try:
            status, text = _post(self._url, body, self._timeout_s)
            if status != HTTPStatus.OK:
                reason = f"status {status}: {text[:500].decode(errors='replace')}"
                return Answer(None, reason, unsupported=400 <= status < 500)
            accepted = self._protocol.accepted(json.loads(text))
        except TimeoutError:
            return Answer(None, f"no answer within {self._timeout_s:g} s")
        except _NO_VERDICT as error:
            return Answer(None, f"{type(error).__name__}: {error}"[:500])
        return Answer(accepted, "accepted" if accepted else "rejected", seconds=time.monotonic() - began)


def _post(url: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
    """Return the status and at most 16 MiB of the answer. Raises TimeoutError, OSError, HTTPException.

    The limit is for the whole exchange. That of a socket would begin anew with every byte.
    """
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection, late = kind(parts.netloc, timeout=timeout_s), threading.Event()

    def end() -> None:
        late.set()
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    with contextlib.closing(connection):
        connection.connect()
        timer = threading.Timer(timeout_s, end)
        timer.start()
        try:
            connection.request("POST", parts.path or "/", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            found = answer.status, answer.read(_MOST_BYTES)
        except (OSError, HTTPException):
            if late.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
    if late.is_set():
        raise TimeoutError
    return found
