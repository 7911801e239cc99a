"""A program that reaches the link between the exam and a grader decides about no other program."""

from __future__ import annotations

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from whetstone.core.problem import NoTests, Problem, Program
from whetstone.core.verdict import Verdict
from whetstone_exam.exam.callable_target import CallableTarget
from whetstone_exam.exam.http_target import PROTOCOLS, HttpTarget, JudgeProtocol
from whetstone_exam.exam.limits import limit_items
from whetstone_exam.exam.targets import Answer
from whetstone_exam.rejudge.function_judge import FunctionJudge

pytestmark = pytest.mark.process

GRADER = "tests.exam.forging_grader:run_inside"
RIGHT, WRONG = "right = True", "right = False"
LONG = "x" * (1 << 20)
"""Longer than a pipe: a request with it is written only if the other process reads."""
TIMEOUT_S = 5.0
ENOUGH_S = 60.0
YES, NO = b'{"score": 1.0}\n', b'{"score": 0.0}\n'


def writes(data: bytes) -> str:
    return f"import os\nos.write(ANSWERS, {data!r})\n"


def later(body: str) -> str:
    """Return a program with a thread that does this 50 ms after the answer."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return (
        f"import ctypes, os, signal, threading, time\ndef later():\n    time.sleep(0.05)\n{lines}\n"
        "threading.Thread(target=later, daemon=True).start()\n"
    )


FORGED = {
    "one line more": writes(YES),
    "many lines more": writes(YES * 50),
    "the opposite lines": writes(NO * 3),
    "a line with an invented number": writes(b'{"score": 1.0, "number": "0123456789abcdef"}\n'),
    "a line with an empty number": writes(b'{"score": 1.0, "number": ""}\n'),
    "a line with no number": writes(b'{"score": 1.0, "number": null}\n'),
    "half a line": writes(b'{"score": 1.0, "number": '),
    "no JSON": writes(b"\xff\x00 no JSON\n"),
    "JSON of another kind": writes(b"[1]\n1\ntrue\nnull\n"),
    "deep JSON": writes(b"[" * 20000 + b"\n"),
    "an unsupported problem": writes(b'{"unsupported": "never"}\n'),
    "a ready line": writes(b'{"ready": false}\n'),
    "a line after the answer": later(writes(YES)),
    "lines again and again": later(f"while True:\n    os.write(ANSWERS, {YES!r})\n    time.sleep(0.01)"),
    "a flood": later("while True: os.write(ANSWERS, b'x' * 4096)"),
    "a flood of lines": later(f"while True: os.write(ANSWERS, {YES!r} * 100)"),
    "a long line": writes(b"x" * 60000) + later("while True: os.write(ANSWERS, b'x' * 60000)"),
}
DEAF = {
    "stopped": later("os.kill(os.getpid(), signal.SIGSTOP)"),
    "holding the interpreter": later("ctypes.PyDLL(None).sleep(600)"),
    "reading the requests itself": later("while True: time.sleep(0.01) or os.read(3, 10)"),
    "stopped before its answer": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n",
    "sleeping": "import time\ntime.sleep(600)\n",
    "without the descriptor for answers": "import os\nos.close(ANSWERS)\n",
    "without any descriptor": later("os.closerange(0, 64)"),
    "ended": later("os._exit(0)"),
}


def target() -> closing[CallableTarget]:
    return closing(CallableTarget(GRADER, unprotected=True, timeout_s=TIMEOUT_S))


def answer(made: CallableTarget, source: str) -> Answer:
    """Return the answer about a program. Waiting for ever would fail the test."""
    problem = Problem("p", "", NoTests())
    return made.submit(problem, Program("python", source)).result(timeout=ENOUGH_S)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", FORGED)
def test_lines_that_a_program_writes_to_the_link_change_no_later_answer(name: str) -> None:
    with target() as made:
        answer(made, f"{FORGED[name]}\n{WRONG}")
        time.sleep(0.2)
        later = [answer(made, source) for source in (WRONG, RIGHT, WRONG, RIGHT, WRONG)]
    wanted = [False, True, False, True, False]
    assert all(found.accepted in (None, want) for found, want in zip(later, wanted, strict=True)), later
    assert [found.accepted for found in later[2:]] == wanted[2:]


def settled(made: CallableTarget, source: str) -> bool | None:
    """Return the first answer of several attempts: a process that starts on a busy machine may be late."""
    found = (answer(made, source).accepted for _ in range(5))
    return next((accepted for accepted in found if accepted is not None), None)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", DEAF)
def test_a_process_that_does_not_read_ends_after_the_time_limit(name: str) -> None:
    with target() as made:
        answer(made, f"{DEAF[name]}\n{RIGHT}")
        time.sleep(0.5)
        later = [answer(made, f"{source}\n# {LONG}") for source in (WRONG, RIGHT, WRONG, RIGHT)]
        wanted = [False, True, False, True]
        assert all(found.accepted in (None, want) for found, want in zip(later, wanted, strict=True)), later
        assert [settled(made, source) for source in (WRONG, RIGHT)] == [False, True]


def test_no_forged_line_makes_a_wrong_program_accepted_in_the_judge_of_a_function() -> None:
    with target() as made:
        judge = FunctionJudge(made)
        problem = Problem("p", "", NoTests())
        sources = [f"{FORGED['one line more']}\n{WRONG}", WRONG, RIGHT, WRONG]
        judged = [judge.submit(problem, Program("python", source)) for source in sources]
        verdicts = [future.result(timeout=ENOUGH_S).verdict for future in judged]
    assert verdicts == [Verdict.WRONG_ANSWER, Verdict.WRONG_ANSWER, Verdict.ACCEPTED, Verdict.WRONG_ANSWER]


def test_a_process_is_replaced_after_its_program_wrote_to_the_link() -> None:
    with target() as made:
        answer(made, RIGHT)
        answer(made, RIGHT)
        assert len(made._all) == 1
        assert answer(made, f"{writes(YES)}\n{WRONG}").accepted is False
        assert answer(made, RIGHT).accepted is True
        assert len(made._all) == 2


SLOW = {
    "never answers": [],
    "answers byte by byte": [b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", *[b" "] * 999],
    "sends headers byte by byte": [b"HTTP/1.1 200 OK\r\nA: ", *[b"x"] * 999],
    "sends headers without end": [b"HTTP/1.1 200 OK\r\n", *[b"A: b\r\n"] * 99],
    "sends 100 again and again": [b"HTTP/1.1 100 Continue\r\n\r\n"] * 999,
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", SLOW)
def test_a_service_that_answers_slowly_ends_after_the_time_limit(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(_serve, server, SLOW[name])
        protocol = JudgeProtocol("/", lambda *_: "", lambda *_: {}, lambda _: True)
        port = server.getsockname()[1]
        with closing(HttpTarget("slow", f"http://127.0.0.1:{port}", protocol, 1, 1.0)) as made:
            found = made.submit(Problem("p", "", NoTests()), Program("python", "")).result(timeout=ENOUGH_S)
    assert (found.accepted, found.detail) == (None, "no answer within 1 s")


def _serve(server: socket.socket, parts: list[bytes]) -> None:
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        for part in parts:
            connection.sendall(part)
            time.sleep(0.1)
        while connection.recv(4096):
            pass


ODD = {
    "a list": b"[]",
    "a number": b"1",
    "nothing": b"",
    "deep JSON": b"[" * 100_000,
    "null": b"null",
    "another object": b"{}",
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_of_another_form_is_no_verdict(name: str, protocol: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ODD[name])
    pauses = next(item for item in limit_items() if item.id == "honest/limits/a pause, asserts")
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(_serve, server, [head + ODD[name]])
        with closing(
            HttpTarget("odd", f"http://127.0.0.1:{server.getsockname()[1]}", PROTOCOLS[protocol], 1, 30.0)
        ) as made:
            found = made.submit(pauses.problem, pauses.program).result(timeout=ENOUGH_S)
    assert found.accepted is None or (found.accepted, protocol) == (False, "sandboxfusion")
