"""An OpenAI-compatible server on loopback whose answers a test writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]  # status and JSON body; a body of bytes is sent as it is; status 0 hangs up


@dataclass
class Scripted:
    """``answer`` is called with the path, the body and how many requests for replies came before."""

    answer: Callable[[str, dict[str, Any], int], Answer]
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "scripted"}])
    url: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serving(scripted: Scripted) -> Generator[Scripted]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with scripted.lock:
                scripted.keys.append(self.headers.get("Authorization"))
            if self.path == "/v1/models":
                self.reply(200, {"data": scripted.models})
            elif self.path == "/version":
                self.reply(200, {"version": "1.2.3"})
            else:
                self.reply(404, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with scripted.lock:
                before = len(scripted.requests)
                scripted.requests.append((self.path, body))
            self.reply(*scripted.answer(self.path, body, before))

        def reply(self, status: int, body: Any) -> None:
            if status == 0:
                self.close_connection = True
                self.connection.close()
                return
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if status == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    scripted.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield scripted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def completion(text: str | list[Any] | None, finish: str = "stop", tokens: int = 5, **message: Any) -> Answer:
    """A chat completion."""
    choice = {"message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    return 200, {"choices": [choice], "usage": {"completion_tokens": tokens}}


def fenced(program: str) -> str:
    return f"Here it is:\n````python\n{program}\n````\n"
