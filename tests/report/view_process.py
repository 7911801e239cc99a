"""``whetstone view`` as a process of its own, asked over a plain socket."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.processes import ENOUGH_S


class ViewProcess:
    """A server on a free port, which has said where it is."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "whetstone", "view", *words, "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, "it ended before it listened"

    def ask(
        self, path: str, query: dict[str, Any] | None = None, *, method: str = "GET", **headers: str
    ) -> tuple[int, http.client.HTTPMessage, str]:
        """Status, headers and body."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=ENOUGH_S)
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def data(self, path: str, query: dict[str, Any] | None = None, **more: Any) -> Any:
        """What it answers as JSON."""
        status, _, body = self.ask(path, {**(query or {}), **more})
        assert status == 200, body
        return json.loads(body)

    def places(self) -> dict[str, dict[str, Any]]:
        """What it lists, by name."""
        return {place["name"]: place for place in self.data("/v1/list")["places"]}


@contextmanager
def viewed(*words: str) -> Generator[ViewProcess]:
    view = ViewProcess(*words)
    try:
        yield view
    finally:
        view.process.send_signal(signal.SIGTERM)
        assert view.process.wait(ENOUGH_S) == 0
