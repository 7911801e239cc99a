"""A client bounds how often one program can take a server down, and keeps all other verdicts."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.service_process import service, sum_problem
from whetstone.judge import Program, Verdict
from whetstone.service.client import JudgeClient

RIGHT = Program("python", "print(sum(map(int, input().split())))\n")
DEADLY = Program("python", "# deadly\nprint(3)\n")


class Relay:
    """A relay before a real server. It drops every connection when a deadly program passes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.losses = 0
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            while not self._ending.is_set():
                for key, _ in selector.select(0.1):
                    if key.fileobj is self._listening:
                        self._open(selector)
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._pairs:
                        self._pass_on(selector, key.fileobj)
            self._drop(selector)
            self._listening.close()

    def _open(self, selector: selectors.BaseSelector) -> None:
        client = self._listening.accept()[0]
        server = socket.create_connection(("127.0.0.1", self._port))
        for end, other in ((client, server), (server, client)):
            self._pairs[end] = other
            selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, selector: selectors.BaseSelector, end: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = end.recv(1 << 20)
        if b"# deadly" in data:
            self.losses += 1
            self._drop(selector)
        elif data:
            self._pairs[end].sendall(data)
        else:
            self._close(selector, end)

    def _drop(self, selector: selectors.BaseSelector) -> None:
        for end in list(self._pairs):
            if end in self._pairs:
                self._close(selector, end)

    def _close(self, selector: selectors.BaseSelector, end: socket.socket) -> None:
        for each in (end, self._pairs.pop(end)):
            self._pairs.pop(each, None)
            selector.unregister(each)
            each.close()


@pytest.fixture
def relays(tmp_path: Path) -> Iterator[list[Relay]]:
    with contextlib.ExitStack() as stack:
        found = list[Relay]()
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            found.append(Relay(stack.enter_context(service(tmp_path / name)).port))
            stack.callback(found[-1].close)
        yield found


@pytest.mark.process
def test_a_program_that_ends_its_servers_is_a_judge_error_after_four_losses(relays: list[Relay]) -> None:
    with JudgeClient([relay.url for relay in relays]) as client:
        before = [client.submit(sum_problem(), RIGHT) for _ in range(12)]
        deadly = client.submit(sum_problem(), DEADLY)
        after = [client.submit(sum_problem(), RIGHT) for _ in range(12)]
        lost = deadly.result()
        assert (lost.verdict, lost.score) == (Verdict.JUDGE_ERROR, None)
        assert "servers were lost while they judged it" in lost.reason
        assert [each.result().verdict for each in [*before, *after]] == [Verdict.ACCEPTED] * 24
    assert 4 <= sum(relay.losses for relay in relays) <= 5  # a kept connection counts with the new one
