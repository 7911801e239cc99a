"""What hangs up, stalls, floods or is killed: nothing leaks, and no program is judged for nobody."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.processes import ENOUGH_S, descendants, wait_until
from tests.service.service_process import (
    ADDS,
    ENDLESS,
    ServiceProcess,
    commanded,
    program,
    service,
    sum_problem,
)
from whetstone.cli.main import main

pytestmark = pytest.mark.process

_SLOW = sum_problem(limits={"cpu_s": 300.0, "memory_mb": 256, "output_mb": 1})
_WORKER = "whetstone.judge.workers.main"


def request_bytes(path: str, body: object, length: int | None = None) -> bytes:
    data = json.dumps(body).encode()
    length = len(data) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode() + data


def read_until(client: socket.socket, words: bytes) -> bytes:
    answer = b""
    while words not in answer:
        part = client.recv(1 << 16)
        assert part, answer
        answer += part
    return answer


def running(server: ServiceProcess) -> bool:
    return server.metric("whetstone_judge_running_programs") > 0


def test_a_program_stops_when_its_client_disconnects(server: ServiceProcess) -> None:
    cancelled = server.metric("whetstone_judge_cancelled_programs_total")
    with server.socket() as client:
        client.sendall(request_bytes("/v1/judge", {"program": ENDLESS, "problem": _SLOW}))
        wait_until(lambda: running(server))
    wait_until(lambda: server.metric("whetstone_judge_cancelled_programs_total") == cancelled + 1)
    # The only worker is free again, long before the 300 s of the limit.
    assert server.ask("POST", "/v1/judge", {"program": ADDS, "problem": sum_problem()})[0] == 200


def test_a_killed_client_leaves_no_program_behind(server: ServiceProcess) -> None:
    cancelled = server.metric("whetstone_judge_cancelled_programs_total")
    data = request_bytes("/v1/judge", {"program": ENDLESS, "problem": _SLOW})
    talk = "import socket, sys\ndata = sys.stdin.buffer.read()\n"
    talk += f"all = [socket.create_connection(('127.0.0.1', {server.port})) for _ in range(50)]\n"
    talk += "for each in all: each.sendall(data)\nall[0].recv(1 << 20)\n"
    client = subprocess.Popen([sys.executable, "-c", talk], stdin=subprocess.PIPE)
    assert client.stdin is not None
    client.stdin.write(data)
    client.stdin.close()
    wait_until(lambda: running(server))
    client.kill()
    client.wait()
    wait_until(lambda: not running(server))
    assert server.metric("whetstone_judge_cancelled_programs_total") > cancelled
    assert server.metric("whetstone_judge_waiting_programs") == 0


def test_a_killed_worker_costs_no_verdict(server: ServiceProcess) -> None:
    slow = program("print(sum(map(int, input().split())) + 0 * sum(range(30_000_000)))\n")
    answers: list[object] = []
    asked = {"program": slow, "problem": _SLOW}
    asking = threading.Thread(target=lambda: answers.append(server.ask("POST", "/v1/judge", asked)))
    asking.start()
    wait_until(lambda: running(server))
    [worker] = commanded(descendants(server.process.pid), _WORKER)
    os.kill(worker, signal.SIGKILL)
    asking.join(ENOUGH_S)
    [(status, judged)] = answers  # pyright: ignore
    assert (status, judged["verdict"]) == (200, "accepted")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with service(tmp_path, "--max-body-mb", "1", "--body-silence", "0.5", "--write-silence", "0.5") as server:
        with server.socket() as client:  # announced, and never sent
            client.sendall(request_bytes("/v1/judge", {}, length=1 << 40))
            assert b"413" in client.recv(1 << 16)
        with server.socket() as client:  # in pieces, whose sum nobody announced
            client.sendall(
                b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
            for _ in range(17):
                client.sendall(piece)
            assert b"413" in client.recv(1 << 16)
        with server.socket() as client:  # half of it, and then nothing
            client.sendall(request_bytes("/v1/judge", {"program": ADDS}, length=1000))
            assert b"408" in client.recv(1 << 16)
        _one_who_reads_nothing(server)
        assert server.metric('whetstone_judge_held_bytes{what="bodies"}') == 0
        assert server.ask("POST", "/v1/judge", {"program": ADDS, "problem": sum_problem()})[0] == 200


def test_a_head_that_does_not_end_is_hung_up_on_and_a_long_answer_is_not(tmp_path: Path) -> None:
    head = b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n"
    wakes = program("import time\ntime.sleep(1.5)\nprint(sum(map(int, input().split())))\n")
    with service(tmp_path, "--head-time", "0.5") as server:
        with server.socket() as silent, server.socket() as busy, server.socket() as slow:
            busy.sendall(request_bytes("/v1/judge", {"program": wakes, "problem": sum_problem()}))
            slow.sendall(head + b"\r\n")
            read_until(slow, b"pong")
            slow.sendall(head)
            assert b"408" in _dribbled(slow)  # a connection that was used before
            assert silent.recv(1) == b""
            assert b'"accepted"' in read_until(busy, b"isolation")  # later than the limit on heads
        assert server.said("request", status=408)["error"] == "slow_head"
        assert server.ask("GET", "/v1/ping") == (200, "pong")


# Above the limit and what the server reads at once.
_LONG = 1 << 20
_PING = b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n"
_CHUNKED = b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
_LONG_HEADS = {
    "that never ends": _PING + b"X-More: " + b"x" * _LONG,
    "at once": _PING + b"X-More: " + b"x" * _LONG + b"\r\n\r\n",
    "of many fields": _PING + b"X-More: x\r\n" * (_LONG // 11) + b"\r\n",
    "of many empty fields": _PING + b"x:\r\n" * (_LONG // 4) + b"\r\n",
    "by its address": b"GET /v1/ping?" + b"x" * _LONG + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "by a name": _PING + b"x" * _LONG + b": x\r\n\r\n",
    "with a body": b"POST /v1/judge HTTP/1.1\r\nX: " + b"x" * _LONG + b"\r\nContent-Length: 2\r\n\r\n{}",
    "after a body in pieces": _CHUNKED + b"2\r\n{}\r\n0\r\nX-More: " + b"x" * _LONG + b"\r\n\r\n",
}


def test_a_head_that_is_too_long_is_refused(server: ServiceProcess) -> None:
    for name, head in _LONG_HEADS.items():
        with server.socket() as client:
            answer = _answer_to(client, head)
            assert answer.startswith(b"HTTP/1.1 400") or not answer, name
        with server.socket() as client:  # the first request may have been answered before
            assert _answer_to(client, _PING + b"\r\n" + head).count(b"HTTP/1.1 200") <= 1, name
    assert server.ask("GET", "/v1/ping") == (200, "pong")


def _answer_to(client: socket.socket, data: bytes) -> bytes:
    """What is answered until the server hangs up, which it may do before it has read all of ``data``."""
    with contextlib.suppress(OSError):
        client.sendall(data)
    return _all_of(client)


def _all_of(client: socket.socket) -> bytes:
    """What is answered until the server hangs up."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            answer += part
    return answer


def _dribbled(client: socket.socket) -> bytes:
    """What is answered while a byte is sent now and then, for ever."""
    client.settimeout(0.05)
    answer = b""
    while True:
        try:
            client.sendall(b"x")
            if not (part := client.recv(1 << 16)):
                return answer
            answer += part
        except TimeoutError:
            continue
        except OSError:
            return answer


def _one_who_reads_nothing(server: ServiceProcess) -> None:
    """Its first answer is longer than what the kernel takes in its place, so the second one has to wait."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        long = request_bytes("/run_code", {"code": "print('x' * 8_000_000)", "language": "python"})
        client.sendall(long + b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        server.said("request", endpoint="/v1/ping", error="client_gone")


def test_after_sigterm_running_programs_end_and_none_starts(tmp_path: Path) -> None:
    slow = program("import time\ntime.sleep(5)\nprint(sum(map(int, input().split())))\n")
    with service(tmp_path) as server:
        kept = server.socket()
        kept.sendall(b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_until(kept, b"pong")
        with server.socket() as client:
            client.sendall(request_bytes("/v1/judge", {"program": slow, "problem": _SLOW}))
            wait_until(lambda: running(server))
            below = descendants(server.process.pid)
            server.process.send_signal(signal.SIGTERM)
            server.said("draining")
            _refuses_all(server, kept)
            assert b'"accepted"' in read_until(client, b"isolation")
        kept.close()
        assert server.process.wait(ENOUGH_S) == 0
        assert server.lines()[-1]["event"] == "ended"
        wait_until(lambda: not [pid for pid in below if Path(f"/proc/{pid}").exists()])


def _refuses_all(server: ServiceProcess, kept: socket.socket) -> None:
    """Whoever asks while it drains is told to come again, on a new connection or one from before."""
    one = {"program": ADDS, "problem": sum_problem()}
    with server.socket() as client:
        client.sendall(request_bytes("/v1/judge", one))
        answer = _all_of(client).lower()
        assert answer.startswith(b"http/1.1 503")
        assert b"\r\nretry-after: 1\r\n" in answer
        assert b"\r\nconnection: close\r\n" in answer
    kept.sendall(request_bytes("/v1/judge", one))
    assert _all_of(kept).startswith(b"HTTP/1.1 503")
    for path in ("/run_code", "/common_evaluate_batch"):
        assert server.ask("POST", path, {})[0] == 503
    assert server.ask("GET", "/v1/info")[0] == server.ask("GET", "/readyz")[0] == 503
    assert server.ask("GET", "/v1/ping") == (200, "pong")


def test_a_killed_server_leaves_no_process(tmp_path: Path) -> None:
    with service(tmp_path) as server, server.socket() as client:
        client.sendall(request_bytes("/v1/judge", {"program": ENDLESS, "problem": _SLOW}))
        wait_until(lambda: running(server))
        below = descendants(server.process.pid)
        assert len(below) >= 3
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        assert client.recv(1 << 16) == b""
        wait_until(lambda: not [pid for pid in below if Path(f"/proc/{pid}").exists()])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "use --token-file FILE"),
        (["--token-file", "nowhere"], "nowhere"),
        (["--port", "70000"], "port 70000"),
        (["--host", "192.0.2.1", "--token-file", __file__], "a token must be printable ASCII without blanks"),
    ],
)
def test_an_address_that_will_not_do_is_refused_with_the_way_out(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", "serve", *options]) == 2
    assert words in capsys.readouterr().err


def test_the_variables_of_a_deployment_are_defaults(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST", "0.0.0.0")
    assert main(["judge", "serve"]) == 2
    assert "0.0.0.0" in capsys.readouterr().err
    monkeypatch.setenv("MAX_MEM", "lots")
    assert main(["judge", "serve"]) == 2
    assert "MAX_MEM=lots" in capsys.readouterr().err
