"""A small server on loopback that speaks the hub's HTTP API, as far as ``huggingface_hub`` uploads by it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_TheOnlyTokenThatThisServerKnows"
LARGE = 3000
"""Files of as many bytes are sent apart from the commit, as the hub asks it for large ones."""


@dataclass
class Repository:
    """A repository with its only branch."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    commits: int = 0


class HubStandIn(ThreadingHTTPServer):
    """A hub where the account ``me`` may write to its own repositories, with ``TOKEN``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        """By kind and name, such as ``models/me/tiny``."""
        self.objects: dict[str, bytes] = {}
        """Large files by their SHA-256."""
        self.asked: list[str] = []
        """Method and path of every request."""
        self.failing: set[str] = set()
        """Requests that end with 500: a part of their path."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def hub() -> Generator[HubStandIn]:
    server = HubStandIn()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubStandIn  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.server.asked.append(f"{method} {path}")
        if any(part in path for part in self.server.failing):
            return self._send(500, {"error": "out of order"})
        if path.startswith("/objects/"):  # signed addresses need no token
            return self._take_object(path.removeprefix("/objects/"), body)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, {"error": f"no such token: {self.headers.get('Authorization')}"})
        for pattern, handle in _PATHS:
            if found := re.fullmatch(pattern, f"{method} {path}"):
                return handle(self, body, *found.groups())
        return self._send(404, {"error": f"no {method} {path} in this stand-in"})

    def _account(self, body: bytes) -> None:
        self._send(200, {"type": "user", "name": "me", "orgs": []})

    def _create(self, body: bytes) -> None:
        asked = json.loads(body)
        if asked["organization"] != "me":
            said = f"no rights in the namespace {asked['organization']}: {self.headers['Authorization']}"
            return self._send(403, {"error": said})
        name = f"{asked.get('type', 'model')}s/me/{asked['name']}"
        if name in self.server.repositories:
            there = {
                "error": "you have it already",
                "url": f"{self.server.url}/{name.removeprefix('models/')}",
            }
            return self._send(409, there)
        self.server.repositories[name] = Repository(asked.get("visibility") == "private")
        return self._send(200, {"url": f"{self.server.url}/{name.removeprefix('models/')}"})

    def _info(self, body: bytes, name: str) -> None:
        found = self.server.repositories.get(name)
        if found is None or (found.private and "/me/" not in name):
            return self._send(404, {"error": "Repository not found"}, "RepoNotFound")
        files = [{"rfilename": file} for file in (".gitattributes", *found.files)]
        about = {"id": name.partition("/")[2], "private": found.private, "sha": "0" * 40}
        return self._send(200, {**about, "siblings": files})

    def _validate(self, body: bytes) -> None:
        errors = (
            [{"message": '"license" must be one of …'}]
            if "license: mine" in json.loads(body)["content"]
            else []
        )
        self._send(400 if errors else 200, {"warnings": [], "errors": errors})

    def _modes(self, body: bytes, name: str) -> None:
        if not name.partition("/")[2].startswith("me/"):
            return self._send(403, {"error": "no rights"})
        files = [
            {
                "path": one["path"],
                "shouldIgnore": False,
                "uploadMode": "lfs" if one["size"] >= LARGE else "regular",
            }
            for one in json.loads(body)["files"]
        ]
        return self._send(200, {"files": files})

    def _batch(self, body: bytes) -> None:
        objects: list[dict[str, Any]] = []
        for one in json.loads(body)["objects"]:
            upload = {"upload": {"href": f"{self.server.url}/objects/{one['oid']}"}}
            have = one["oid"] in self.server.objects
            objects.append({"oid": one["oid"], "size": one["size"], **({} if have else {"actions": upload})})
        self._send(200, {"transfer": "basic", "objects": objects})

    def _take_object(self, oid: str, body: bytes) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            return self._send(400, {"error": "other bytes"})
        self.server.objects[oid] = body
        return self._send(200, {})

    def _commit(self, body: bytes, name: str) -> None:
        repository = self.server.repositories[name]
        repository.commits += 1
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            match line["key"]:
                case "file":
                    repository.files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    repository.files[value["path"]] = self.server.objects[value["oid"]]
                case "deletedFile":
                    del repository.files[value["path"]]
                case _:
                    assert line["key"] == "header"
        self._send(
            200,
            {
                "commitUrl": f"{self.server.url}/{name.removeprefix('models/')}/commit/1",
                "commitOid": "1" * 40,
            },
        )

    def _send(self, status: int, content: dict[str, Any], code: str = "") -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()
        self.wfile.write(data)


_NAME = r"((?:models|datasets)/[\w-]+/[\w-]+)"
_PATHS: list[tuple[str, Any]] = [
    ("GET /api/whoami-v2", _Handler._account),
    ("POST /api/repos/create", _Handler._create),
    ("POST /api/validate-yaml", _Handler._validate),
    (f"GET /api/{_NAME}", _Handler._info),
    (f"POST /api/{_NAME}/preupload/main", _Handler._modes),
    (f"POST /api/{_NAME}/commit/main", _Handler._commit),
    (r"POST /[\w/-]+\.git/info/lfs/objects/batch", _Handler._batch),
]
