"""A flow as a process of its own, on a free port, which can be killed and started again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from whetstone.core.http.settings import Address
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.identity import Identity
from whetstone.rollout.service.app import serve_flow
from whetstone.rollout.source import PromptSource

ENOUGH_S = 120.0
IDENTITY = Identity({"test": "1"})


class FlowProcess:
    """The flow of ``folder``, which can be killed and started again where it was, port included."""

    def __init__(
        self, folder: Path, rules: FlowRules, problems: list[str], seed: int, tokens: tuple[str, ...] = ()
    ) -> None:
        self.log = folder / "flow.jsonl"
        self._args = [
            str(folder / "flow"),
            msgspec.json.encode(rules).decode(),
            json.dumps(problems),
            str(seed),
        ]
        self._tokens, self.port = tokens, 0
        self.start()

    def __enter__(self) -> FlowProcess:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def start(self) -> None:
        command = [sys.executable, __file__, *self._args, str(self.port), json.dumps(self._tokens)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)
        deadline = time.monotonic() + ENOUGH_S
        while not (listening := [line for line in self.said() if line["event"] == "listening"]):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.port = listening[0]["port"]
        self.url = f"http://127.0.0.1:{self.port}"

    def said(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(ENOUGH_S)


if __name__ == "__main__":
    folder, rules, problems, seed, port, tokens = sys.argv[1:]
    serve_flow(
        Address(port=int(port), tokens=tuple(json.loads(tokens))),
        msgspec.json.decode(rules, type=FlowRules),
        PromptSource(json.loads(problems), int(seed)),
        Path(folder),
        IDENTITY,
        stall_s=1.0,
    )
