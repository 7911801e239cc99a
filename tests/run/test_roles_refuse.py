"""Roles that cannot work where or as they are told say so, with the way out, before they have begun."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import whetstone
from tests.run.roles_by_hand import write_async_recipe
from tests.warm_command import whetstone as command
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.problem import Compare, Limits, Problem, StdinCase, StdinTests
from whetstone.engine.scratch import build_tokenizer
from whetstone.rollout import identity
from whetstone.rollout.service import client
from whetstone.run.evaluation import evaluation_sets
from whetstone.run.prepared_run import PreparedRun
from whetstone.run.problem_sets import ProblemSets
from whetstone.run.recipe import load_recipe
from whetstone.run.roles.identity import run_identity
from whetstone.run.roles.trainer import evaluates_nothing
from whetstone.weights.tcp_server import TcpServer
from whetstone.weights.version_store import VersionStore

pytestmark = pytest.mark.process


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as holding:
        yield holding.getsockname()[1]


def test_a_port_in_use_is_refused_with_the_setting_that_changes_it(
    taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = write_async_recipe(tmp_path), tmp_path / "run"
    assert main(["role", "flow", str(recipe), f"out={out}", "--port", str(taken)]) == 2
    assert f"flow: cannot listen on 127.0.0.1:{taken}" in (said := capsys.readouterr().err)
    assert "use another --host or --port" in said
    assert not out.exists()
    with pytest.raises(UserError, match=r"Address already in use; name another port \(.*--weights-port\)"):
        TcpServer(VersionStore(keep=1, copies=2), port=taken)


def test_only_the_trainer_needs_the_evaluation_sets(
    taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, missing = write_async_recipe(tmp_path), tmp_path / "missing.jsonl"
    settings = (f"out={tmp_path / 'run'}", f"evaluation.sets=[{{benchmark: humaneval, data: {missing}}}]")
    assert main(["role", "flow", str(recipe), *settings, "--port", str(taken)]) == 2
    assert "cannot listen on" in capsys.readouterr().err
    assert main(["role", "trainer", str(recipe), *settings, "--flow", "http://127.0.0.1:1"]) == 2
    assert str(missing) in capsys.readouterr().err


def test_a_trainer_that_cannot_give_its_weights_away_says_so_before_it_makes_a_model(
    taken: int, tmp_path: Path
) -> None:
    recipe, out = write_async_recipe(tmp_path), tmp_path / "run"
    where = ("--flow", "http://127.0.0.1:1", "--weights-port", str(taken))
    done = command("role", "trainer", str(recipe), f"out={out}", *where)
    assert done.returncode == 2
    assert f"trainer: 127.0.0.1:{taken}: cannot listen for replicas" in done.stderr
    assert "warm-up" not in done.stdout
    assert not out.exists()


def test_a_flow_that_was_never_there_is_waited_for_but_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_CONTACT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"

    async def ask() -> None:
        asking = client.FlowClient(address, client.Identity({}))
        try:
            await asking.hello()
        finally:
            await asking.close()

    with pytest.raises(UserError, match=rf"no flow answered at {address} .*give another address \(--flow\)"):
        asyncio.run(ask())


def test_another_tokenizer_model_or_sampling_is_another_run(tmp_path: Path) -> None:
    recipe = load_recipe(write_async_recipe(tmp_path), [])
    usual = Problem("p", "s", StdinTests([StdinCase("", "1")]))

    def of(corpus: str, *overrides: str, problem: Problem = usual) -> client.Identity:
        said = load_recipe(write_async_recipe(tmp_path), list(overrides)) if overrides else recipe
        sets = ProblemSets([problem], [])
        return run_identity({"policy": PreparedRun(said, sets, (), build_tokenizer([corpus], 300))})

    mine = of("abcabc")
    assert mine.difference(of("abcabc")) == ""
    assert mine.difference(of("abcabc", "judge.workers=2", "model.threads=2", "flow.room=9")) == ""
    assert "differs from the flow's in `tokenizer`" in mine.difference(of("xyzzyx"))
    assert "in `model.dtype`:" in mine.difference(of("abcabc", "model.dtype=bfloat16"))
    hotter = of("abcabc", "sampling.temperature=0.5")
    assert "in `sampling.temperature`: start all roles" in mine.difference(hotter)
    changes: dict[str, object] = {
        "tests": StdinTests([StdinCase("", "2")]),
        "statement": "t",
        "limits": Limits(cpu_s=3.0),
        "compare": Compare(mode="exact"),
    }
    for name, value in changes.items():
        other = of("abcabc", problem=replace(usual, **{name: value}))
        assert f"in `problems.{name}`:" in mine.difference(other)
        assert mine.digest != other.digest
        assert mine.log_digest != other.log_digest


@pytest.mark.parametrize(
    ("overrides", "measured", "none"),
    [
        ((), True, False),
        ((), False, True),
        (("evaluation.process=separate", "evaluation.every=2"), True, True),
        (("evaluation.process=separate", "evaluation.every=2"), False, True),
    ],
)
def test_a_trainer_that_evaluates_nothing_starts_no_server(
    overrides: tuple[str, ...], measured: bool, none: bool, tmp_path: Path
) -> None:
    recipe = load_recipe(
        write_async_recipe(tmp_path), ["engine.kind=vllm", "deterministic=false", *overrides]
    )
    problem = Problem("p", "s", StdinTests([StdinCase("", "1")]))
    sets = ProblemSets([problem], [problem])
    ahead = PreparedRun(recipe, sets, evaluation_sets(recipe, sets) if measured else (), None)
    assert evaluates_nothing(ahead) == none


def test_another_build_of_the_same_version_is_refused_and_may_go_on_with_the_log() -> None:
    mine, other = client.Identity({"a": "1"}), client.Identity({"a": "1"}, build="0123")
    assert "their source files differ; install the same package" in mine.difference(other)
    assert mine.digest != other.digest
    assert mine.log_digest == other.log_digest


def test_the_build_follows_every_source_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[str] = []
    for text in ("x = 1\n", "x = 2\n"):
        (tmp_path / "part").mkdir(exist_ok=True)
        (tmp_path / "__init__.py").write_text("", encoding="utf-8")
        (tmp_path / "part" / "a.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(whetstone, "__file__", str(tmp_path / "__init__.py"))
        builds.append(identity.own_build.__wrapped__())
    assert builds[0] != builds[1]
