"""What models and agents read contains no value that a hidden test expects.

A secret is planted in the tests, references and wrong programs of problems of every kind. Replies come to
every verdict. All texts that environments, tools, the gateway and the integrations show are read.
"""

from __future__ import annotations

import asyncio
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pydantic
import pytest
from msgspec.structs import replace

import whetstone.integrations
from tests.environments import repositories
from tests.environments.agents import Numbered, Played, play, user
from tests.environments.scripted import TOKENIZER, Says
from tests.environments.test_repair import BEYOND_LIMITS, LIMITS, PROBLEMS, SECRET, WRONG
from tests.judge.repository_tasks import TESTS
from whetstone.core.errors import UserError
from whetstone.core.optional_packages import install_command
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    InteractiveCase,
    InteractiveTests,
    Problem,
    Program,
    ProgramChecker,
    PythonChecker,
    PythonInteractor,
    StandardChecker,
    StdinCase,
    StdinTests,
)
from whetstone.core.settings import Sampling
from whetstone.core.verdict import Judgement, Verdict
from whetstone.environments import settings, tool
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import RolloutRequest, run_groups
from whetstone.environments.settings import EnvironmentSection
from whetstone.integrations import inspect_ai, nemo_gym, openenv, rewards, trl, verifiers, verl
from whetstone.integrations.openrlhf import RewardFunction
from whetstone.integrations.rewards import Rewards
from whetstone.integrations.tool_limits import ToolCallLimits
from whetstone.judge import AsyncJudge, Judge

pytestmark = pytest.mark.process

STDIN = StdinTests([StdinCase("4", SECRET)])
RAISES = f"def check(input, output, expected):\n    raise ValueError(expected + '{SECRET}')\n"
EXITS = "import sys\nsys.stderr.write(open('answer.txt').read())\nsys.exit(9)\n"
TALKS = "def interact(input, answer, read, write):\n    raise ValueError(answer)\n"
DESIGN = CallTests([CallCase([None, int(SECRET)], [[], [4]], operations=["C", "g"])], None, "C")
SHOWN = "Twice.\n\nInput: 4\nOutput: 5\n"
MORE = [
    Problem("raising checker", "s", STDIN, checker=PythonChecker(RAISES), limits=LIMITS),
    Problem("failing checker", "s", STDIN, checker=ProgramChecker("python", EXITS, "kattis"), limits=LIMITS),
    Problem("standard", "s", STDIN, checker=StandardChecker("icmp"), limits=LIMITS),
    Problem("unreadable", "s", StdinTests([StdinCase("4", f"x{SECRET}")]), checker=StandardChecker("icmp")),
    Problem("interactor", "s", InteractiveTests([InteractiveCase("4", SECRET)], PythonInteractor(TALKS))),
    Problem("broken test", "s", AssertTests(asserts=[f"assert f(4) == unknown_{SECRET}"]), limits=LIMITS),
    Problem("forgeable", "s", AssertTests(asserts=[f"assert f.__code__.co_argcount == 1, {SECRET}"])),
    Problem("design", "s", DESIGN, limits=LIMITS),
    Problem("lines", SHOWN, StdinTests([StdinCase("4", "5"), StdinCase("6", SECRET)]), limits=LIMITS),
]
ANSWERS = Program("python", f"def f(x):\n    return {SECRET}\nprint({SECRET})\n")
PLANTED = [
    replace(
        each, references=[ANSWERS], wrong=[replace(ANSWERS, source=f"print({SECRET}0)")], meta={"a": SECRET}
    )
    for each in [*PROBLEMS, *MORE]
]
PROGRAMS = [*WRONG.values(), "class C:\n    def g(self, x):\n        return x\n"]
PAIRS = [(problem, program) for problem in PLANTED for program in PROGRAMS]
LIMITED = [
    (replace(PLANTED[0], id=f"limits {number}", limits=limits), program)
    for number, (program, limits) in enumerate(BEYOND_LIMITS.items())
]
PAIRS += LIMITED


def reply_of(program: str) -> str:
    return f"```python\n{program}\n```" if program else "There is none."


@dataclass
class Remembers:
    """A judge that judges each program once, for all integrations."""

    judge: Judge
    known: dict[bytes, Future[Judgement]]
    minimum_tier = "restricted"

    def submit(self, problem: Problem, program: Program, **options: Any) -> Future[Judgement]:
        key = msgspec.json.encode([problem, program, options])
        if key not in self.known:
            self.known[key] = self.judge.submit(problem, program, **options)
        return self.known[key]

    def worker_pids(self) -> list[int]:
        return []

    def close(self) -> None:
        return


@pytest.fixture(scope="module")
def judge() -> Iterator[Remembers]:
    with Judge(1) as running, pytest.MonkeyPatch.context() as patch:
        remembers = Remembers(running, {})
        patch.setattr(rewards, "_judge", lambda settings: remembers)
        # Objects that this process shares must not keep a judge that ends with these tests.
        patch.setattr(rewards, "_shared", {})
        yield remembers


def _module(patch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    module = ModuleType(name)
    vars(module).update(members)
    patch.setitem(sys.modules, name, module)


def _tried(shown: Callable[[], Any]) -> str:
    """What is shown, or the message of the error, which a client or an agent reads as well."""
    try:
        return str(shown())
    except UserError as error:
        return str(error)


def from_openenv(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    class Message(pydantic.BaseModel):
        reward: Any = None
        done: bool = False
        episode_id: Any = None
        step_count: int = 0

    made = {"Action": Message, "Observation": Message, "State": Message, "ConcurrencyConfig": dict}
    _module(patch, "openenv.core.env_server.types", **made)
    _module(patch, "openenv.core.env_server.interfaces", Environment=object)
    _module(patch, "openenv.core.env_server.http_server", create_app=lambda *given, **more: given)
    path = folder / "set.jsonl"
    problems = [*PLANTED, *(problem for problem, _ in LIMITED)]
    path.write_bytes(b"".join(msgspec.json.encode(problem) + b"\n" for problem in problems))
    create, action, observation = openenv.code_app(str(path))[:3]
    yield str(observation.model_json_schema())
    for problem, program in PAIRS:
        session = create()
        yield session.reset(problem_id=problem.id).model_dump_json()
        yield _tried(lambda: session.step(action(reply=reply_of(program))).model_dump_json())  # noqa: B023
        yield session.state.model_dump_json()
        session.reset(problem_id=problem.id)
        asked = session.step_async(action(reply=reply_of(program)))
        yield _tried(lambda: asyncio.run(asked).model_dump_json())  # noqa: B023
    yield _tried(lambda: create().reset(problem_id="none"))


def from_inspect_ai(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    def scorer(**declared: Any) -> Any:
        return lambda made: made

    named: Any = {name: lambda: None for name in ("accuracy", "stderr")}
    _module(patch, "inspect_ai.scorer", CORRECT="C", INCORRECT="I", Score=dict, scorer=scorer, **named)
    _module(patch, "inspect_ai.dataset", Sample=dict, MemoryDataset=lambda samples, name: samples)
    _module(patch, "inspect_ai.model", ChatMessageUser=dict, ChatMessageSystem=dict)
    path = folder / "set.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(problem) + b"\n" for problem in PLANTED))
    for sample in inspect_ai.code_dataset(str(path)):
        yield str(sample["input"])
    score = inspect_ai.whetstone_scorer()
    for problem, program in PAIRS:
        whole = {"problem": msgspec.json.encode(problem).decode()}
        state = SimpleNamespace(output=SimpleNamespace(completion=reply_of(program)), metadata=whole)
        yield _tried(lambda: asyncio.run(score(state, None)))  # noqa: B023


def from_verifiers(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    for problem, program in PAIRS:
        said = SimpleNamespace(content=reply_of(program), reasoning_content=None)
        trace, task = SimpleNamespace(assistant_messages=[said]), SimpleNamespace(problem=problem)
        yield _tried(lambda: asyncio.run(verifiers.code_reward(task, trace)))  # noqa: B023


def from_verl(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    for problem, program in PAIRS:
        given = ("source", reply_of(program), msgspec.json.encode(problem).decode())
        yield _tried(lambda: asyncio.run(verl.compute_score(*given)))  # noqa: B023


def from_trl(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    logged: list[Any] = []
    replies, problems = [reply_of(program) for _, program in PAIRS], [problem for problem, _ in PAIRS]
    yield str(trl.CodeReward()(replies, problems, lambda *one: logged.append(one)))
    yield str(logged)


def from_openrlhf(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    """And from the reward server, which answers with these results and messages."""
    reward = RewardFunction()
    for problem, program in PAIRS:
        yield _tried(lambda: reward([f"p{reply_of(program)}"], ["p"], [problem]))  # noqa: B023


def from_rewards(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    with Rewards() as all_replies:
        for problem, program in PAIRS:
            [scored] = all_replies.score([reply_of(program)], [problem])
            yield scored.explanation
            yield _tried(lambda: all_replies.number(scored))  # noqa: B023


def from_nemo_gym(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    class Message(pydantic.BaseModel):
        responses_create_params: Any = None
        response: Any = None
        reward: float = 0.0

    class Server(pydantic.BaseModel):
        config: Any

    made = {"BaseVerifyRequest": Message, "BaseVerifyResponse": Message, "SimpleResourcesServer": Server}
    _module(patch, "nemo_gym.base_resources_server", BaseResourcesServerConfig=pydantic.BaseModel, **made)
    path = folder / "set.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(problem) + b"\n" for problem in PLANTED))
    for row in nemo_gym.code_rows(str(path)):
        yield str(row["responses_create_params"])
    kind = nemo_gym.code_server()
    server, body = kind(config=kind.__annotations__["config"]()), kind.verify.__annotations__["body"]
    rows = [(msgspec.json.encode(problem).decode(), program) for problem, program in PAIRS]
    for problem, program in [*rows, (f"no JSON, {SECRET}", "1")]:
        said = {"type": "message", "content": [{"text": reply_of(program)}]}
        item = SimpleNamespace(type="message", model_dump=lambda: said)  # noqa: B023
        asked = body(response=SimpleNamespace(output=[item]), verifier_metadata={"problem": problem})
        yield _tried(lambda: asyncio.run(server.verify(asked)))  # noqa: B023


def from_mcp_server(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    """The agent gives the tests itself; the results still quote none of their values."""
    pytest.importorskip("mcp", reason=f"the extra mcp is missing: {install_command('mcp')}")
    from whetstone.integrations.mcp_server import JudgeTools

    with Judge(1) as own:
        tools = JudgeTools(own, ToolCallLimits(max_cpu_s=0.5))
        for problem, program in PAIRS:
            tests = msgspec.json.decode(msgspec.json.encode(problem.tests))
            try:
                yield str(asyncio.run(tools.judge_program(program, tests)))
            except Exception as error:  # an agent reads the message of any error
                yield str(error)


SURFACES = {
    "openenv": from_openenv,
    "inspect_ai": from_inspect_ai,
    "verifiers": from_verifiers,
    "verl": from_verl,
    "trl": from_trl,
    "openrlhf": from_openrlhf,
    "rewards": from_rewards,
    "nemo_gym": from_nemo_gym,
    "mcp_server": from_mcp_server,
}
# Readers of rows and settings, the server of `openrlhf`, and what only people use.
NOT_SHOWN = {"rows", "settings", "reward_url", "tool_limits"}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", SURFACES)
def test_an_integration_shows_no_expected_value(
    name: str, judge: Remembers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    texts = [*SURFACES[name](monkeypatch, tmp_path)]
    assert len(texts) > 1
    assert not [text for text in texts if SECRET in text]


def test_every_integration_is_read_or_known_to_show_nothing() -> None:
    modules = {module.name for module in pkgutil.iter_modules(whetstone.integrations.__path__)}
    assert modules == {*SURFACES, *NOT_SHOWN}


def test_the_replies_come_to_every_verdict(judge: Remembers) -> None:
    """And the judge's own reasons hold the secret, so that a text made of them would be found."""
    found = [judge.submit(problem, Program("python", program)).result() for problem, program in PAIRS]
    assert {judgement.verdict for judgement in found} >= set(Verdict) - {Verdict.ACCEPTED}
    told = {
        judgement.verdict
        for judgement in found
        if SECRET in judgement.reason + "".join(case.reason for case in judgement.cases)
    }
    assert told >= {Verdict.WRONG_ANSWER, Verdict.JUDGE_ERROR}
    assert any(judgement.shared_interpreter for judgement in found)


CALLS: list[tuple[str, dict[str, Any]]] = [
    *(
        ("python", {"code": f"{program}\nprint(dir(), open('/proc/self/cmdline').read())"})
        for program in PROGRAMS
    ),
    *(("python", {}), ("python", {"code": 4}), ("none", {}), ("python", {"code": "x", "y": 1})),
]


def _conversation(kind: str) -> Callable[[str, int], str]:
    """The replies of a model that tries to make the environment say what the tests expect."""

    def said(text: str, index: int) -> str:
        turn = text.count("[assistant]") - 1
        if kind == "tools" and turn < len(CALLS):
            name, arguments = CALLS[turn]
            return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
        if "write exactly" in text and kind == "codegen_verifier":
            return '{"inputs": ["7", "8"], "outputs": ["1", "2"]}'
        return reply_of(PROGRAMS[(index + turn) % len(PROGRAMS)])

    return said


OPTIONS: dict[str, dict[str, Any]] = {
    "single_turn": {},
    "repair": {"turns": 4},
    "tools": {"tools": [*tool._BUILT_IN], "calls": 30, "cpu_s": 2.0},
    "codegen_verifier": {},
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", OPTIONS)
def test_an_environment_shows_no_expected_value(kind: str) -> None:
    asked: list[str] = []

    async def run() -> None:
        section = EnvironmentSection.model_validate({"kind": kind, "options": OPTIONS[kind]})
        environment = section.build()
        async with AsyncJudge(1, stop_at_first_failure=not section.needs_all_cases) as judge:
            for problem in PLANTED:
                engines = {name: Says(_conversation(kind)) for name in environment.models}
                replies = {
                    name: EngineReplies(engine, TOKENIZER, Sampling(max_tokens=64), max_prompt_tokens=10**6)  # pyright: ignore
                    for name, engine in engines.items()
                }
                n = 1 if kind == "tools" else len(PROGRAMS)
                if kind == "codegen_verifier" and not isinstance(problem.tests, StdinTests | CallTests):
                    continue
                await run_groups(environment, problem, RolloutRequest(replies, judge, n))
                asked.extend(text for engine in engines.values() for text in engine.asked)
        await environment.close()

    asyncio.run(run())
    assert len(asked) >= len(PLANTED) or kind == "codegen_verifier"
    assert not [text for text in asked if SECRET in text]


# A value that the tests of a task expect, which a program can compute and the code base does not contain.
VALUE = "7391000"
SECRET_TEST = f"\n\ndef test_secret():\n    assert from_roman('M' * 7391) == {VALUE}\n"
SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("bash", {"command": "env; ls -laR . /tmp /w 2>&1; cat /proc/*/cmdline; git log 2>&1"}),
    ("bash", {"command": "find / -name '*.json*' -exec cat {} + 2>/dev/null | grep -a 7391 | cut -c1-99"}),
    ("bash", {"command": "python3 -m pytest -q; python3 -c 'import roman; print(vars(roman))'"}),
    *(("view", {"path": path}) for path in (".", "tests", "tests/test_roman.py", "../tasks.jsonl", "/proc")),
    *(("edit", {"path": path, "search": "x", "replace": ""}) for path in ("tests/test_roman.py", "none")),
    ("submit", {"tests": True}),
    ("submit", {}),
]
SEARCHING_AGENT = """import os, subprocess
for command in {commands!r}:
    done = subprocess.run([os.environ["WHETSTONE_SHELL"], "-c", command], capture_output=True, text=True)
    open({seen!r}, "a").write(done.stdout + done.stderr)
"""


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", ["repository", "repository_agent"])
def test_a_repository_shows_no_expected_value(kind: str, tmp_path: Path) -> None:
    """The tests, the reference and the meta data of the task are in a folder of this machine."""
    calls = [
        f"<tool_call>{json.dumps({'name': name, 'arguments': given})}</tool_call>" for name, given in SEARCHES
    ]
    with repositories.task_set(TESTS + SECRET_TEST, meta={"answer": VALUE}) as (folder, packages):
        assert VALUE in (folder / "tasks.jsonl").read_text()
        problem = repositories.only_problem(folder)
        if kind == "repository":
            engine = repositories.in_turn_of(calls)
            repositories.play(repositories.section(packages, calls=30), problem, engine=engine)
            read = engine.asked
            assert len(read) == len(calls)
        else:
            agent, seen = tmp_path / "agent.py", tmp_path / "seen"
            commands = [given["command"] for _, given in SEARCHES if "command" in given]
            agent.write_text(SEARCHING_AGENT.format(commands=commands, seen=str(seen)))
            command = [sys.executable, str(agent)]
            settings = repositories.section(packages, kind=kind, command=command)
            repositories.play(settings, problem, engine=Numbered())
            read = [seen.read_text()]
            assert "PYTHONPATH" in read[0]
    assert not [text for text in read if VALUE in text]


def test_the_gateway_shows_no_expected_value() -> None:
    answered: list[str] = []

    async def agent(played: Played) -> float:
        address = urlsplit(played.base_url)
        requests = [
            {"messages": [user("a")]},
            {"messages": [user("a")], "stream": True, "seed": 1},
            {"messages": [user("a")], "n": 2},
            {"messages": [{"role": "x", "content": "a"}]},
            {"messages": [user("a" * 100_000)]},
            [],
        ]
        sent = [(f"POST {address.path}/chat/completions", played.api_key, body) for body in requests]
        sent += [(f"POST {address.path}/chat/completions", "no key", requests[0])]
        sent += [(f"POST {address.path}/{path}", played.api_key, requests[0]) for path in ("problems", "")]
        sent += [(f"GET {address.path}/models", played.api_key, None)]
        for line, key, content in sent:
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            body = b"" if content is None else json.dumps(content).encode()
            head = f"authorization: Bearer {key}\r\ncontent-length: {len(body)}\r\nconnection: close"
            writer.write(f"{line} HTTP/1.1\r\nhost: {address.netloc}\r\n{head}\r\n\r\n".encode() + body)
            answered.append((await reader.read()).decode())
            writer.close()
        return 1.0

    for problem in PLANTED:
        play(agent, Numbered(), problem=problem)
    assert len(answered) == 10 * len(PLANTED)
    assert not [text for text in answered if SECRET in text]


def test_every_environment_and_tool_is_read() -> None:
    # What the agent `agent` reads are the answers of the gateway, and the prompt of `single_turn`. The kinds
    # of repositories have a test of their own.
    assert set(settings._BUILT_IN) == {*OPTIONS, "agent", "repository", "repository_agent"}
    assert set(tool._BUILT_IN) == {"python"}
