"""Our own endpoints: the judge's verdicts, in order, as they come, and refusals that say what is wrong."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.service.service_process import ADDS, ServiceProcess, program, service, sum_problem

pytestmark = pytest.mark.process

WRONG = program("print(0)\n")
BROKEN = program("print(\n")


_NO_CASES = {"kind": "stdin", "cases": []}


def item(what: dict[str, str] | None, **more: object) -> dict[str, object]:
    return {"program": what, "problem": sum_problem("3\n", "4\n"), **more}


def test_a_judgement_is_the_judges_with_every_field(server: ServiceProcess) -> None:
    status, judged = server.ask("POST", "/v1/judge", item(ADDS))
    assert status == 200
    assert judged["verdict"] == "accepted"
    assert judged["score"] == 1.0
    assert [case["index"] for case in judged["cases"]] == [0, 1]
    assert all(case["cpu_s"] > 0 and case["peak_bytes"] > 0 for case in judged["cases"])
    assert server.ask("POST", "/v1/judge", item(None))[1]["verdict"] == "no_code"


def test_a_problem_is_named_by_the_hash_of_the_sent_bytes(server: ServiceProcess) -> None:
    data = json.dumps(sum_problem(id="t/named")).encode()
    digest = hashlib.sha256(data).hexdigest()
    asked = {"problem_sha256": digest, "program": ADDS}
    status, refused = server.ask("POST", "/v1/judge", asked)
    assert (status, refused["error"]["code"]) == (404, "unknown_problem")
    assert server.ask("PUT", "/v1/problems", data) == (200, {"problem_sha256": digest})
    assert server.ask("POST", "/v1/judge", asked)[1]["verdict"] == "accepted"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"program":', 400, "truncated"),
        (b"\xff\xfe", 400, "JSON"),
        (b"", 400, "JSON"),
        (b'{"options": {"a": ' + b"[" * 100_000, 400, "JSON"),
        ({"program": ADDS}, 400, "exactly one of `problem` and `problem_sha256`"),
        ({"program": ADDS, "problem": sum_problem(), "progam": 1}, 400, "progam"),
        ({"program": ADDS, "problem": {**sum_problem(), "tests": _NO_CASES}}, 400, "tests.cases"),
        ({"program": program("", "basic"), "problem": sum_problem()}, 200, ""),
        ({"program": program("10 PRINT", "basic"), "problem": sum_problem()}, 400, "the judge runs python, "),
        ({"program": ADDS, "problem": sum_problem(), "options": {"colour": 1}}, 400, "option `colour`"),
        ({"program": ADDS, "problem": sum_problem(), "options": {"max_cases": 0}}, 400, "max_cases is 0"),
        ({"program": ADDS, "problem": sum_problem(), "options": {"deadline_s": -1}}, 400, "deadline"),
        ({"program": ADDS, "problem": sum_problem(), "options": {"max_cases": "\ud800"}}, 400, "are numbers"),
        ({"program": ADDS, "problem": sum_problem(), "options": {"deadline_s": "soon"}}, 400, "X-Deadline"),
        ({"program": ADDS, "problem": sum_problem(), "options": {"deadline_s": 10**400}}, 400, "too large"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_said(
    server: ServiceProcess, body: object, status: int, words: str
) -> None:
    answered, said = server.ask("POST", "/v1/judge", body)
    assert answered == status, said
    if status != 200:
        assert words in said["error"]["message"]
        assert said["detail"] == said["error"]["message"]


def test_paths_and_methods_that_are_none(server: ServiceProcess) -> None:
    assert "did you mean `/v1/judge`" in server.ask("POST", "/v1/jugde")[1]["detail"]
    status, said = server.ask("GET", "/v1/judge")
    assert (status, said["detail"]) == (405, "/v1/judge accepts POST, not GET")


def test_a_deadline_that_is_too_short_is_a_504_with_the_time_of_another_try(server: ServiceProcess) -> None:
    endless = {"program": program("while True: pass\n"), "problem": sum_problem()}
    # The program waited in another queue before, so the time that it takes here is not most of it.
    options = {"deadline_s": 0.2, "queued_s": 60.0}
    status, said = server.ask("POST", "/v1/judge", {**endless, "options": options})
    assert (status, said["error"]["code"]) in ((504, "deadline"), (503, "busy"))
    assert server.metric("whetstone_judge_running_programs") == 0


def test_a_request_keeps_its_id_from_header_to_log(server: ServiceProcess) -> None:
    server.ask("GET", "/v1/info", headers={"X-Request-ID": "mine-17"})
    line = server.said("request", id="mine-17")
    assert (line["endpoint"], line["status"]) == ("/v1/info", 200)


def test_who_has_no_token_is_told_and_asks_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    tokens = folder / "tokens"
    tokens.write_text("# of the trainer\nright-token\n")
    with service(folder, "--token-file", str(tokens), "--host", "0.0.0.0") as server:
        for header, status in {
            "": 401,
            "Bearer wrong": 401,
            "Bearer right-token": 200,
            "Basic YW55OnJpZ2h0LXRva2Vu": 200,  # any:right-token, as in http://any:right-token@host
            "Basic !!": 401,
        }.items():
            headers = {"Authorization": header} if header else {}
            assert server.ask("POST", "/v1/judge", item(ADDS), headers)[0] == status, header
            assert server.ask("GET", "/v1/info", headers=headers)[0] == status
        assert server.ask("GET", "/v1/ping") == (200, "pong")


def test_a_web_page_may_not_ask_where_there_are_no_tokens(server: ServiceProcess) -> None:
    assert server.ask("POST", "/v1/judge", item(ADDS), {"Origin": "http://a.page"})[0] == 403
