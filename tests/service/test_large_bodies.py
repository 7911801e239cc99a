"""Bodies of very many values: refused before they are made, at a cost in proportion to their bytes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.service.service_process import ADDS, ServiceProcess, sum_problem
from whetstone.core.http.refusal import RequestRefused
from whetstone.core.problem import Program, problem_from
from whetstone.judge.workers.wire import count_values, pack
from whetstone.service import messages
from whetstone.service.messages import PACKED, JudgeRequest, count_json_values

_MANY = 4_000_000
_LISTS = b"[" + b"[]," * _MANY + b"[]]"
_TABLE = {"type": "function_call", "fn_name": "f", "output": [[1]]}


def body(value: Any, hole: bytes) -> bytes:
    """``value`` as JSON, with ``hole`` where it says HOLE."""
    return json.dumps(value).encode().replace(b'"HOLE"', hole)


def evaluation(input: Any, **table: Any) -> dict[str, Any]:
    data = {"test_cases": {**_TABLE, "input": input, **table}}
    return {"completion": "x = 1", "config": {"language": "python", "provided_data": data}}


_ONE: dict[str, Any] = {"program": ADDS, "problem": sum_problem()}
_BODIES: dict[str, tuple[str, bytes]] = {
    "no object": ("/v1/judge", _LISTS),
    "in the options": ("/v1/judge", body({**_ONE, "options": {"a": "HOLE"}}, _LISTS)),
    "beside a problem": ("/v1/judge", body({**_ONE, "problem": sum_problem(meta={"a": "HOLE"})}, _LISTS)),
    "mappings": ("/v1/judge", body({**_ONE, "options": {"a": "HOLE"}}, b"[" + b"{}," * _MANY + b"{}]")),
    "numbers": ("/common_evaluate_batch", body(evaluation([["HOLE"]]), b"[" + b"1," * 6_000_000 + b"1]")),
    "text": (
        "/common_evaluate_batch",
        body({"completion": "", "config": {"provided_data": {"a": "HOLE"}}}, b"[" + b'"",' * _MANY + b"1]"),
    ),
    "quotes that are escaped": ("/v1/judge", body({**_ONE, "options": {'\\"\\': "HOLE"}}, _LISTS)),
    "a table": ("/common_evaluate_batch", body(evaluation("HOLE"), _LISTS)),
    "in text that is read as JSON": (
        "/common_evaluate_batch",
        body(evaluation([_LISTS.decode()], json_input=True, output=["1"]), b""),
    ),
}


def used(server: ServiceProcess) -> tuple[float, int]:
    """CPU seconds of the server's process, and MiB that it held at most."""
    place = Path(f"/proc/{server.process.pid}")
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    peak = (place / "status").read_text().partition("\nVmHWM:")[2].split()[0]
    return (int(fields[11]) + int(fields[12])) / 100, int(peak) >> 10


@pytest.mark.process
@pytest.mark.parametrize(("path", "data"), _BODIES.values(), ids=_BODIES.keys())
def test_a_body_of_too_many_values_is_refused_before_they_are_made(
    server: ServiceProcess, path: str, data: bytes
) -> None:
    cpu_s, peak_mb = used(server)
    status, said = server.ask("POST", path, data)
    assert (status, said["error"]["code"]) == (413, "too_many_values")
    now_s, now_mb = used(server)
    assert now_s - cpu_s < 0.7  # making these values took 1.2 s and more
    assert now_mb - peak_mb < 12 * len(data) >> 20  # and 20 to 30 times its bytes
    assert server.metric('whetstone_judge_held_bytes{what="bodies"}') == 0
    assert server.ask("POST", "/v1/judge", _ONE)[1]["verdict"] == "accepted"


@pytest.mark.extended
@pytest.mark.process
def test_a_packed_body_of_too_many_values_is_refused_too(server: ServiceProcess) -> None:
    for many in (b"\x90", b"\x80", b"\x01", b"\xa0", b"\xc0", b"\xd9\x00"):
        head = pack(JudgeRequest(Program("python", "x"), problem_from(sum_problem()), options={"a": [7]}))
        assert head.endswith(b"\x91\x07")
        data = head[:-2] + b"\xdd" + _MANY.to_bytes(4, "big") + many * _MANY
        status, said = server.ask("POST", "/v1/judge", data, {"Content-Type": PACKED})
        assert (status, "more than 2,000,000 values" in said["detail"]) == (400, True)


@pytest.mark.process
def test_a_long_body_of_few_values_is_served(server: ServiceProcess) -> None:
    text = '[],{}:"\\' * 1_000_000
    problem = sum_problem(statement=text, meta={"a": [text, text]})
    assert server.ask("POST", "/v1/judge", {**_ONE, "problem": problem})[1]["verdict"] == "accepted"
    packed = pack(JudgeRequest(Program(**ADDS), problem_from(problem)))
    assert server.ask("POST", "/v1/judge", packed, {"Content-Type": PACKED})[1]["verdict"] == "accepted"
    assert server.metric('whetstone_judge_held_bytes{what="bodies"}') == 0


def drawn(random: random.Random, depth: int) -> Any:
    """A value with texts that hold what JSON is made of."""
    kind = random.randrange(7 if depth else 4)
    if kind == 0:
        return random.choice([None, True, 1, -2.5e30, 0])
    if kind < 4:
        return "".join(random.choices('"\\/,:[]{}a\n\ud800é', k=random.randrange(8)))
    values = [drawn(random, depth - 1) for _ in range(random.randrange(5))]
    return values if kind == 4 else {str(drawn(random, 0)) + str(n): v for n, v in enumerate(values)}


def values_of(value: Any) -> int:
    """How many objects a value is made of, keys among them."""
    if isinstance(value, dict):
        return 1 + sum(1 + values_of(each) for each in value.values())
    return 1 + sum(map(values_of, value)) if isinstance(value, list) else 1


def test_values_are_never_undercounted(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(300):
        value = drawn(random.Random(seed), 5)
        for ascii in (True, False):
            data = json.dumps(value, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
            monkeypatch.setattr(messages, "MOST_VALUES", len(data) - 1)  # so that none is refused unseen
            assert count_json_values(data) >= values_of(value)


def test_packed_values_are_counted_as_they_are() -> None:
    for seed in range(300):
        value = json.loads(json.dumps(drawn(random.Random(seed), 5)).replace("\\ud800", ""))
        long = [
            value,
            "x" * 300,
            "y" * 70_000,
            b"z" * 300,
            b"",
            1 << 40,
            -5,
            1.5,
            list(range(20)),
            msgspec.Raw(b"\xc0"),
        ]
        data = msgspec.msgpack.encode(long)
        assert count_values(memoryview(data), len(data) - 1) == values_of(msgspec.msgpack.decode(data))
        assert count_values(memoryview(data[:-3]), 10) <= 11


def test_the_error_for_too_many_values_names_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_VALUES", 10)
    with pytest.raises(RequestRefused, match="send fewer at once") as refused:
        messages.read_json(b"[" + b"1," * 20 + b"1]", list[int], "the body")
    assert refused.value.status == 413
