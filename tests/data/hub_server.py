"""A small server on loopback that speaks the hub's HTTP API, as far as ``huggingface_hub`` reads datasets."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = hashlib.sha1(b"the only commit").hexdigest()


class HubServer(ThreadingHTTPServer):
    """Serves ``files`` as dataset ``repo`` at ``main``; ``me/gated`` needs a token that nobody has."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes], repo: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.repo = repo
        self.break_after: dict[str, list[int]] = {}
        """Name -> after how many bytes the connection breaks, one entry for each download."""
        self.ranges: list[tuple[str, str | None]] = []
        """The Range of every download."""
        self.said_sha256 = ""
        """What the list says of every large file's hash, where that is to be a lie."""
        self.stalled: set[str] = set()
        """Of these files, and of "the list", nothing is sent before ``go_on`` is set."""
        self.go_on = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is what the tests do on purpose."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(files: dict[str, bytes], repo: str = "me/set") -> Generator[HubServer]:
    server = HubServer(files, repo)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer  # pyright: ignore[reportIncompatibleVariableOverride]
    COMMITS = ("0" * 40, COMMIT)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(head=True)

    def do_GET(self) -> None:
        self._answer(head=False)

    def _answer(self, head: bool) -> None:
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/datasets/(\w+/\w+)/revision/(\w+)", path):
            if self._refused(found[1], found[2]):
                return
            self._stall("the list")
            siblings = [self._sibling(name, data) for name, data in self.server.files.items()]
            self._send(json.dumps({"id": found[1], "sha": COMMIT, "siblings": siblings}).encode(), head=head)
        elif found := re.fullmatch(r"/api/datasets/(\w+/\w+)/commits/main", path):
            about = {"authors": [], "title": "", "message": "", "date": "2024-01-01T00:00:00.000Z"}
            commits = [about | {"id": commit} for commit in self.COMMITS]
            self._send(json.dumps(commits).encode(), head=head)
        elif found := re.fullmatch(r"/datasets/(\w+/\w+)/resolve/(\w+)/(.+)", path):
            if not self._refused(found[1], found[2]):
                self._send_file(found[3], head)
        else:
            self._refuse(404, "EntryNotFound")

    def _sibling(self, name: str, data: bytes) -> dict[str, Any]:
        said: dict[str, Any] = {"rfilename": name, "size": len(data)}
        if len(data) > 1000:  # as the hub says it of large files
            digest = self.server.said_sha256 or hashlib.sha256(data).hexdigest()
            said["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
        return said

    def _refused(self, repo: str, revision: str) -> bool:
        if repo == "me/gated":
            return self._refuse(403, "GatedRepo")
        if repo != self.server.repo:
            return self._refuse(404, "RepoNotFound")
        if revision not in ("main", COMMIT):
            return self._refuse(404, "RevisionNotFound")
        return False

    def _refuse(self, status: int, code: str) -> bool:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def _stall(self, name: str) -> None:
        if name in self.server.stalled:
            self.server.go_on.wait()

    def _send_file(self, name: str, head: bool) -> None:
        if not head:
            self._stall(name)
        data = self.server.files[name]
        start = 0
        if not head:
            asked = self.headers.get("Range")
            self.server.ranges.append((name, asked))
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Accept-Ranges": "bytes",
        }
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        breaks = self.server.break_after.get(name)
        until = breaks.pop(0) if breaks and not head else len(data)
        self._send(data[start:], headers, 206 if start else 200, head=head, until=max(until - start, 0))

    def _send(
        self,
        data: bytes,
        headers: dict[str, str] | None = None,
        status: int = 200,
        *,
        head: bool,
        until: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if head:
            return
        self.wfile.write(data[:until])
        if until is not None and until < len(data):
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
