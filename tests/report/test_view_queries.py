"""Whatever a request asks of ``whetstone view``, it gets an answer or a refusal, and never a failure."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.processes import ENOUGH_S
from tests.report.synthetic_run import write_run
from tests.report.test_evaluation_page import write as write_evaluation
from tests.report.view_process import ViewProcess, viewed
from whetstone.report.view.answers import ANSWERS, PAGES, SCRIPT_PATH

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewProcess]:
    folder = tmp_path_factory.mktemp("asked")
    write_run(folder / "run", steps=2)
    write_evaluation(folder / "run" / "evaluations" / "step-0-heldout", {"p/1": [True, False]})
    write_evaluation(folder / "mbpp", {"q/1": [False]})
    with viewed(str(folder)) as process:
        yield process


def status_of(view: ViewProcess, target: bytes, *, method: bytes = b"GET", host: bytes = b"localhost") -> int:
    """Send a target as it is, and return the status; clients of Python refuse to send some."""
    address = urlsplit(view.url)
    with socket.create_connection((address.hostname, address.port), timeout=ENOUGH_S) as connection:
        head = method + b" " + target + b" HTTP/1.1\r\nhost: " + host + b"\r\nconnection: close\r\n\r\n"
        connection.sendall(head)
        answer = connection.makefile("rb").readline()
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "query",
    [
        b"&".join(b"a=1" for _ in range(101)),
        b"&".join(b"id=%d" % n for n in range(5000)),
        b"&" * 300,
        b"a&" * 200,
        b"=&" * 200 + b"id=1",
        b"&".join(b"%26=1" for _ in range(300)),
    ],
)
@pytest.mark.parametrize("path", [b"/", b"/v1/list", b"/run", b"/v1/rollouts/one", b"/assets/page.js"])
def test_a_query_with_too_many_fields_is_refused(view: ViewProcess, path: bytes, query: bytes) -> None:
    assert status_of(view, path + b"?" + query) == 400


def test_a_query_with_as_many_fields_as_allowed_is_answered(view: ViewProcess) -> None:
    assert status_of(view, b"/v1/list?" + b"&".join(b"a%d=1" % n for n in range(100))) == 200


VALUES = [
    b"",
    b"%",
    b"%00",
    b"%ED%A0%80",
    b"%FF",
    b"\xff",
    b"1",
    b"-1",
    b"0",
    b"999999999999999",
    b"9" * 5000,
]
VALUES += [
    b"%C2%B2",
    b"1.5",
    b"NaN",
    b"..%2F..",
    b"%F0%9F%98%80",
    b"a" * 20_000,
    b"%25" * 50,
    b"+",
    b",",
    b",,a",
]
VALUES += [b";", b"[]", b"%0d%0aset-cookie:a", b"'\"<script>", b"#", b"?", b"%u0041"]
NAMES = [b"id", b"ids", b"with", b"seen", b"step", b"row", b"text", b"problem", b"", b"%ff", b"x"]


def test_no_query_makes_it_fail(view: ViewProcess) -> None:
    rng = random.Random(44)
    ids = [str(place["id"]).encode() for place in view.places().values()]
    ids += [b",".join(ids), ids[0] + b"%00"]
    for path in (*ANSWERS, *PAGES, SCRIPT_PATH, "/nothing", "/v1/%ff", "/v1/list%00", "//", "/.."):
        for _ in range(25):
            fields = [
                (name := rng.choice(NAMES))
                + b"="
                + rng.choice(ids if name[:2] == b"id" else VALUES + ids[:1])
                for _ in range(rng.randint(0, 6))
            ]
            target = path.encode() + b"?" + b"&".join(fields)
            status = status_of(view, target, method=rng.choice([b"GET", b"GET", b"GET", b"HEAD", b"POST"]))
            assert status in (200, 400, 404, 405), target
    for host in (b"[::1", b"\xff", b"localhost:", b"localhost:99999999", b"localhost:x", b"[::1%25a]"):
        assert status_of(view, b"/v1/list", host=host) in (200, 400, 421), host
