"""``whetstone judge serve`` as a process of its own, and what its tests ask it by: plain sockets."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import ENOUGH_S, wait_until


class ServiceProcess:
    """A server on a free port. Its log is kept in a file."""

    def __init__(self, folder: Path, *options: str, workers: int = 1) -> None:
        self.log = folder / "service.log"
        command = [sys.executable, "-m", "whetstone", "judge", "serve", "--port", "0"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--workers", str(workers), *options],
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self.port = int(self.said("listening")["port"])
        self.url = f"http://127.0.0.1:{self.port}"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def said(self, event: str, **fields: Any) -> dict[str, Any]:
        """The first line of the log of this event and with these fields, once it is there."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [
                line for line in self.lines() if line["event"] == event and fields.items() <= line.items()
            ]
            assert found or self.process.poll() is None, self.log.read_text()
            return bool(found)

        wait_until(there)
        return found[0]

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and body, which is JSON where it says so."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ENOUGH_S)
        data = body if isinstance(body, bytes | None) else json.dumps(body)
        try:
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            read = answer.read()
        finally:
            connection.close()
        is_json = answer.headers.get("content-type") == "application/json"
        return answer.status, json.loads(read) if is_json else read

    def metric(self, name: str) -> float:
        """The value of a metric, labels included in its name."""
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=ENOUGH_S)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(ENOUGH_S)


@contextmanager
def service(folder: Path, *options: str, workers: int = 1) -> Generator[ServiceProcess]:
    running = ServiceProcess(folder, *options, workers=workers)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.end()


def commanded(pids: set[int], words: str) -> list[int]:
    """Those of ``pids`` whose command line has ``words``."""
    return [pid for pid in pids if words in _command(pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def sum_problem(*outputs: str, id: str = "t/sum", **fields: Any) -> dict[str, Any]:
    """A problem to add two numbers: 1 2, 2 2, 3 2, … with these expected outputs."""
    cases = [{"input": f"{n} 2\n", "output": output} for n, output in enumerate(outputs or ("3\n",), 1)]
    limits = {"cpu_s": 5.0, "memory_mb": 256, "output_mb": 1}
    return {"id": id, "statement": "", "tests": {"kind": "stdin", "cases": cases}, "limits": limits, **fields}


def program(source: str, language: str = "python") -> dict[str, str]:
    return {"language": language, "source": source}


ADDS = program("print(sum(map(int, input().split())))\n")
ENDLESS = program("while True: pass\n")
