"""Replies from a real HTTP server: what is sent, what is read, and what a failing server costs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.evaluate.scripted_server import Answer, Scripted, completion, fenced, serving
from whetstone.core.addresses import may_use_proxy
from whetstone.core.errors import UserError
from whetstone.core.problem import CallCase, CallTests, Problem, Program
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.folder import EvaluationFolder, read_samples
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.endpoint import EndpointModel
from whetstone.evaluate.replies.settings import EndpointSettings
from whetstone.evaluate.results import Evaluation

pytestmark = pytest.mark.process

PLAN = SamplingPlan(n=2, k=(1, 2), temperature=0.6, top_p=0.9, max_tokens=50, stop=("END",), seed=3)
FAST = EndpointSettings(concurrency=4, timeout_s=20, retry_s=0.3, first_wait_s=0.01)
GOOD, BAD = fenced("good = 1"), fenced("bad = 1")
VLLM = [{"id": "m", "owned_by": "vllm", "root": "/weights", "max_model_len": 900}]


class GoodPasses:
    """Accepts programs that say good."""

    minimum_tier = "restricted"

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        if not program.source.strip():
            return Judgement(Verdict.NO_CODE, [], 0.0, "none")
        verdict = Verdict.ACCEPTED if "good" in program.source else Verdict.WRONG_ANSWER
        return Judgement(verdict, [CaseJudgement(verdict)], float(verdict is Verdict.ACCEPTED), "none")


def problems(*names: str) -> list[Problem]:
    tests = CallTests(function="f", cases=[CallCase(args=[2], expected=3)])
    return [Problem(id=name, statement=f"about {name}", tests=tests) for name in names]


def run(
    server: Scripted,
    asked: list[Problem],
    folder: EvaluationFolder | None = None,
    *,
    settings: EndpointSettings = FAST,
    **environment: Any,
) -> Evaluation:
    section = EnvironmentSection.model_validate({"prompt": "{statement}", **environment})
    endpoint = EndpointModel(server.url, None, settings)
    return asyncio.run(
        evaluate(
            asked,
            endpoint.writer(PLAN, section),
            SingleTurn(section),
            GoodPasses(),
            PLAN,
            known=folder.finished() if folder else (),
            record=folder.add if folder else None,
        )
    )


def samples_of(server: Scripted, tmp_path: Path, asked: list[Problem], **more: Any) -> list[Any]:
    with EvaluationFolder(tmp_path, {}, restart=True) as folder:
        folder.finish(run(server, asked, folder, **more))
    return list(read_samples(tmp_path))


def test_a_request_holds_the_chat_the_sampling_and_a_seed_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    monkeypatch.setenv("WHETSTONE_API_KEY", "secret")
    bodies: list[list[dict[str, Any]]] = []
    for _ in range(2):
        with serving(Scripted(lambda *_: completion(GOOD))) as server:
            run(server, problems("a", "b"), system="Be brief.", settings=FAST)
        assert server.keys == ["Bearer secret"] * len(server.keys)
        assert {path for path, _ in server.requests} == {"/v1/chat/completions"}
        bodies.append(sorted((body for _, body in server.requests), key=lambda body: body["seed"]))
    assert bodies[0] == bodies[1]
    assert len({body["seed"] for body in bodies[0]}) == 4
    body = next(body for body in bodies[0] if "about a" in str(body))
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "about a"}]
    expected = {"model": "scripted", "messages": turns, "temperature": 0.6, "top_p": 0.9, "max_tokens": 50}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    assert body == {**expected, **streamed, "stop": ["END"], "seed": body["seed"]}


def test_vllm_gets_its_settings_a_prefix_and_more_fields() -> None:
    extra = EndpointSettings(
        concurrency=1, timeout_s=20, body={"chat_template_kwargs": {"enable_thinking": False}}
    )
    with serving(Scripted(lambda *_: completion(GOOD), VLLM)) as server:
        endpoint = EndpointModel(server.url, None, extra)
        run(server, problems("a"), prefix="Well: ", settings=extra)
    told = {key: endpoint.manifest[key] for key in ("source", "owner", "root", "context", "version")}
    assert told == {"source": "m", "owner": "vllm", "root": "/weights", "context": 900, "version": "1.2.3"}
    body = server.requests[0][1]
    assert body["messages"][-1] == {"role": "assistant", "content": "Well: "}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert (body["top_k"], body["repetition_penalty"], body["min_p"]) == (-1, 1.0, 0.0)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    with (
        serving(Scripted(lambda *_: completion(GOOD))) as other,
        pytest.raises(UserError, match="not known to continue a reply"),
    ):
        run(other, problems("a"), prefix="Well: ")


def test_plain_text_goes_to_completions_with_its_prefix(tmp_path: Path) -> None:
    answer = (200, {"choices": [{"text": " 1", "finish_reason": "length"}]})
    with serving(Scripted(lambda *_: answer)) as server:
        samples = samples_of(server, tmp_path, problems("a"), chat=False, prefix="good =", extraction="whole")
    path, body = server.requests[0]
    assert (path, body["prompt"]) == ("/v1/completions", "about agood =")
    assert [(s.text, s.program, s.finish_reason, s.tokens) for s in samples] == [
        (" 1", "good = 1", "length", 0)
    ] * 2


@pytest.mark.parametrize(
    ("answer", "thinks", "text", "program"),
    [
        (completion(GOOD, reasoning_content=BAD), False, f"<think>{BAD}</think>{GOOD}", "good = 1\n"),
        (completion(GOOD, reasoning=BAD), False, f"<think>{BAD}</think>{GOOD}", "good = 1\n"),
        (completion(None, "length", reasoning=GOOD), False, f"<think>{GOOD}", None),
        (completion(None, reasoning=GOOD), False, f"<think>{GOOD}</think>", None),
        (completion(f"<think>{GOOD}", "length"), False, f"<think>{GOOD}", None),
        (completion(f"{GOOD}</think>{BAD}"), True, f"<think>{GOOD}</think>{BAD}", "bad = 1\n"),
        (completion(GOOD, "length"), True, f"<think>{GOOD}", None),
        (completion(GOOD, "length"), False, GOOD, "good = 1\n"),
        (completion([{"type": "text", "text": GOOD}, "x"]), False, f"{GOOD}x", "good = 1\n"),
        (
            completion([{"type": "thinking", "thinking": [{"text": BAD}]}, {"text": GOOD}]),
            False,
            f"<think>{BAD}</think>{GOOD}",
            "good = 1\n",
        ),
    ],
)
def test_only_text_after_the_thinking_is_a_solution(
    tmp_path: Path, answer: Answer, thinks: bool, text: str, program: str | None
) -> None:
    settings = EndpointSettings(concurrency=4, timeout_s=20, thinks=thinks)
    with serving(Scripted(lambda *_: answer)) as server:
        samples = samples_of(server, tmp_path, problems("a"), settings=settings)
    assert [(s.text, s.program) for s in samples] == [(text, program)] * 2


def test_thinking_is_reported_with_its_length_and_how_much_of_it_never_ended() -> None:
    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        if "about a" in str(body):
            return completion(GOOD)
        if before % 2:
            return completion(None, "length", 40, reasoning="m" * 30)
        return completion(GOOD, "stop", 40, reasoning="h" * 10)

    one = EndpointSettings(concurrency=1, timeout_s=20)
    with serving(Scripted(answer)) as server:
        shares = run(server, problems("a", "b"), settings=one).shares
    assert (shares.thinking, shares.unfinished_thinking, shares.truncated) == (0.5, 0.25, 0.25)
    assert (shares.mean_thinking_characters, shares.mean_thinking_tokens) == (20.0, None)
    assert shares.mean_tokens == (5 + 5 + 40 + 40) / 4


def test_a_stop_text_that_the_server_took_off_belongs_to_the_reply(tmp_path: Path) -> None:
    status, body = completion("good = 1 ")
    body["choices"][0]["stop_reason"] = "END"
    with serving(Scripted(lambda *_: (status, body))) as server:
        assert samples_of(server, tmp_path, problems("a"))[0].text == "good = 1 END"


@pytest.mark.parametrize(
    "trouble",
    [
        *[(500, {}), (429, {}), (503, b"<html>"), (200, b"not json"), (200, {"choices": []}), (0, None)],
        *[completion(BAD, "abort"), completion(BAD, "error"), (200, {"error": {"message": "gone"}})],
    ],
    ids=["500", "429", "503", "no JSON", "no choice", "hang-up", "abort", "error", "error with 200"],
)
def test_a_passing_failure_is_tried_again_and_leaves_no_trace(trouble: Answer) -> None:
    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        return trouble if before < 3 else completion(GOOD)

    patient = EndpointSettings(concurrency=4, timeout_s=20, retry_s=60, first_wait_s=0.01)
    with serving(Scripted(answer)) as server:
        result = run(server, problems("a", "b"), settings=patient)
    assert (result.pass_at[1].value, result.shares.failed) == (1.0, 0)
    assert len(server.requests) == 4 + 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {"error": {"message": "no provider"}}), "no provider"),
        (completion(BAD, "abort"), "gave up a reply"),
        (completion(5), "not a completion"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_an_answer_that_is_always_without_a_reply_is_quoted(answer: Answer, said: str) -> None:
    with serving(Scripted(lambda *_: answer)) as server, pytest.raises(UserError, match=said):
        run(server, problems("a"))


def test_variables_for_proxies_do_not_concern_a_server_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(Scripted(lambda *_: completion(GOOD))) as server:
        assert run(server, problems("a")).pass_at[1].value == 1.0
    addresses = [
        "http://10.0.0.7:80/v1",
        "http://localhost",
        "http://[::1]:8000",
        "https://api.example.com/v1",
    ]
    assert [may_use_proxy(address) for address in addresses] == [False, False, False, True]


def test_a_field_with_null_is_left_out_of_requests() -> None:
    own = EndpointSettings(timeout_s=20, body={"max_tokens": None, "max_completion_tokens": 9})
    with serving(Scripted(lambda *_: completion(GOOD))) as server:
        run(server, problems("a"), settings=own)
    assert "max_tokens" not in server.requests[0][1]
    assert server.requests[0][1]["max_completion_tokens"] == 9


def test_what_the_server_refuses_of_one_problem_fails_and_counts(tmp_path: Path) -> None:
    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        return (400, {"error": {"message": "too long"}}) if "about b" in str(body) else completion(GOOD)

    with serving(Scripted(answer)) as server:
        result = run(server, problems("a", "b"))
    assert len(server.requests) == 4  # a refusal is not tried again
    assert (result.pass_at[1].value, result.pass_at[1].problems, result.shares.failed) == (0.5, 2, 0.5)
    assert "400" in result.problems[1].error
    assert "too long" in result.problems[1].error


def test_a_server_that_dies_costs_its_patience_once_and_only_the_missing_replies_are_asked_again(
    tmp_path: Path,
) -> None:
    names = [f"p{i}" for i in range(40)]
    recovered = False

    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        return completion(GOOD) if recovered or before < 10 else (0, None)

    with serving(Scripted(answer)) as server:
        with EvaluationFolder(tmp_path, {"m": 1}) as folder:
            result = run(server, problems(*names), folder)
            folder.finish(result)
        assert result.shares.failed == 70 / 80
        assert result.pass_at[1].value == pytest.approx(10 / 80)
        assert result.pass_at[1].problems == 40
        assert len(server.requests) < 10 + 70 * 4  # most of the failed ones were tried once
        recovered = True
        server.requests.clear()
        with EvaluationFolder(tmp_path, {"m": 1}) as folder:
            result = run(server, problems(*names), folder)
            folder.finish(result)
        assert len(server.requests) == 70
    assert (result.pass_at[1].value, result.shares.failed) == (1.0, 0)
    assert [(s.problem_id, s.index) for s in read_samples(tmp_path)] == [
        (n, i) for n in names for i in (0, 1)
    ]


def test_what_every_request_would_meet_ends_the_evaluation() -> None:
    for status in (401, 404):
        with (
            serving(Scripted(lambda *_, status=status: (status, {"error": "no"}))) as server,
            pytest.raises(UserError, match=rf"{status}.*check the address"),
        ):
            run(server, problems("a"))
    with (
        serving(Scripted(lambda *_: (400, {}))) as server,
        pytest.raises(UserError, match="no reply was received"),
    ):
        run(server, problems("a"))


def test_the_model_to_ask_is_the_only_one_or_named() -> None:
    two = [{"id": "one"}, {"id": "two"}]
    with serving(Scripted(lambda *_: completion(GOOD), two)) as server:
        with pytest.raises(UserError, match="it serves one, two"):
            EndpointModel(server.url, None, FAST)
        with pytest.raises(UserError, match="did you mean `two`"):
            EndpointModel(server.url, "tow", FAST)
        assert EndpointModel(f"{server.url}/v1/", "two", FAST).manifest["source"] == "two"


def test_a_folder_is_refused_to_a_second_writer_and_a_torn_line_is_dropped(tmp_path: Path) -> None:
    with serving(Scripted(lambda *_: completion(GOOD))) as server:
        with EvaluationFolder(tmp_path, {}) as folder:
            run(server, problems("a"), folder)
            with pytest.raises(UserError, match="is writing there"), EvaluationFolder(tmp_path, {}):
                pass
        file = tmp_path / "samples.jsonl"
        whole = file.read_bytes()
        file.write_bytes(whole[:-20])
        with EvaluationFolder(tmp_path, {}) as folder:
            assert len(list(folder.finished())) == 1
            run(server, problems("a"), folder)
    assert len(server.requests) == 3
    assert sorted(json.loads(line)["index"] for line in file.read_bytes().splitlines()) == [0, 1]


def test_a_format_and_the_arguments_of_the_template_reach_a_server() -> None:
    said = "[THINK]a bad draft[/THINK]\n```python\ndef f(x): good\n```\n</s>"
    section = EnvironmentSection.model_validate({"prompt": "{statement}"})
    found: list[Any] = []
    scripts = Scripted(lambda *_: completion(said), VLLM), Scripted(lambda *_: completion(said))
    for script, keeps in zip(scripts, (False, None), strict=True):
        with serving(script) as server:
            endpoint = EndpointModel(
                server.url, None, FAST, format="magistral", template_arguments={"enable_thinking": True}
            )
            writer = endpoint.writer(PLAN, section)
            asyncio.run(
                evaluate(problems("a"), writer, SingleTurn(section), GoodPasses(), PLAN, record=found.append)
            )
        body = server.requests[0][1]
        assert body["chat_template_kwargs"] == {"enable_thinking": True}
        assert body.get("skip_special_tokens") is keeps
    assert endpoint.manifest["format"] == "magistral"
    assert {each.accepted for each in found} == {True}
    assert {each.text.partition("</think>")[0] for each in found} == {"<think>a bad draft"}
    with pytest.raises(UserError, match="no format `mistrl`; did you mean `mistral`"):
        EndpointModel("http://127.0.0.1:1", None, FAST, format="mistrl")
