"""An asynchronous run: its roles are processes, which find each other, may be killed, and end in order."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.run.roles_by_hand import CHEAPER, RolesByHand, until, write_async_recipe
from tests.run.tiny_recipe import check_ledger, finished, timeless, write_recipe
from whetstone.cli.main import main
from whetstone.run.initial_model import replica_model
from whetstone.run.recipe import load_recipe
from whetstone.run.roles.role_addresses import reachable_address, replica_command


@pytest.mark.process
def test_roles_started_by_hand_do_the_synchronous_runs_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = (*CHEAPER, "trainer.steps=2", "evaluation.train_problems=0", "warmup.steps=5")
    finished(write_recipe(tmp_path), tmp_path / "alone", *short)
    with RolesByHand(write_async_recipe(tmp_path), tmp_path / "run", *short) as roles:
        assert roles.trainer.wait() == 0, roles.trainer.printed("err")

        def said() -> str:
            assert main(["view", str(roles.out), "--text"]) == 0
            return capsys.readouterr().out

        until(lambda: "replica one: serves weights 2, " in said(), "the last weights to be served")
        assert "step 2 of 2 is complete; the run is complete" in said()
        assert "prompts of policy: 8 trained, dropped: none; " in said()
    assert main(["view", str(roles.out), "--text"]) == 0
    at_last = capsys.readouterr().out
    assert "its roles have ended" in at_last
    assert "prompts of policy, up to step 2: " in at_last
    tokens = check_ledger(tmp_path / "run" / "metrics.jsonl")
    line = f"{tokens['generated']} generated = {tokens['trained']} trained + 0 replayed + 0 dropped"
    assert f"tokens of policy: {line}" in at_last
    assert check_ledger(tmp_path / "alone" / "metrics.jsonl")["trained"] == tokens["trained"]
    assert main(["view", str(tmp_path / "alone"), "--text"]) == 0
    assert f"tokens of policy: {tokens['trained']} generated = " in capsys.readouterr().out
    assert "audit of policy: groups trained: 8 of 8 sampled" in at_last
    assert timeless(tmp_path / "run" / "metrics.jsonl") == timeless(tmp_path / "alone" / "metrics.jsonl")


REFUSED = {
    ("role", "rollout"): "the replica has no address of the flow: give --flow http://HOST:PORT",
    ("role", "trainer"): "the trainer has no address of the flow: give --flow http://HOST:PORT",
    ("role", "flow", "--host", "0.0.0.0"): "everybody who can reach 0.0.0.0: use --token-file",
    ("role", "flow", "--port", "70000"): "port 70000",
    ("role", "trainer", "--flow", "http://127.0.0.1:9", "flow.ranks=2"): "has 2 ranks, each with a part",
    ("train", "flow.staleness=1"): "`deterministic` promises the same batches every time",
    ("train", "flow.batch_composition=mask"): "with `flow.staleness: 0` no token is too old: raise it, or",
    (
        "train",
        "deterministic=false",
        "flow.staleness=1",
        "flow.batch_composition=mask",
        "algorithm={preset: gspo}",
    ): "the loss of `gspo` is made of whole replies; set it to `wait`",
    (
        "train",
        "deterministic=false",
        "flow.staleness=1",
        "flow.batch_composition=mask",
        "algorithm={preset: grpo, kl_coef: 0.1, kl_in: reward}",
    ): "needs the log-probs of every token of a reply; set it to `wait`, or `kl_in` to `loss`",
    ("train", "flow.batch_composition=fifo"): "flow.batch_composition",
    ("train", "flow.room=3"): "a replica samples a whole share, which has 4 prompts: no batch could ever",
    ("train", "flow.shares=5"): "4 prompts of a step cannot be dealt in 5 shares",
    ("train", "flow.gpus={replicas: ['0', '1']}"): "has 2 entries, and `flow.replicas` is 1; give one for",
    ("train", "flow.gpus={trainers: ['0', '1']}"): "has 2 entries, and the run trains 1: give one for each",
    (
        "train",
        "flow.gpus={trainers: ['4']}",
        "flow.ranks=2",
    ): "fewer devices than `flow.ranks`, which is 2",
    ("train", "flow.host=0.0.0.0"): "everybody who can reach 0.0.0.0: set WHETSTONE_FLOW_TOKEN",
    ("train", "flow.weights.folder=/x"): "`folder` is for `by: folder`",
}


@pytest.mark.process
@pytest.mark.parametrize("words", REFUSED)
def test_an_impossible_flow_is_refused_before_anything_is_written(
    words: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WHETSTONE_FLOW", raising=False)
    monkeypatch.delenv("WHETSTONE_FLOW_TOKEN", raising=False)
    recipe, out = write_async_recipe(tmp_path), tmp_path / "run"
    verb = words[:2] if words[0] == "role" else words[:1]
    assert main([*verb, str(recipe), f"out={out}", *words[len(verb) :]]) == 2
    assert REFUSED[words] in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.process
def test_an_address_without_a_token_is_refused_before_the_data_are_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHETSTONE_FLOW_TOKEN", raising=False)
    pipeline = Path(__file__).parents[2] / "recipes" / "data" / "micro.yaml"
    data = [f"data.build={pipeline}", f"data.train={tmp_path / 'micro'}:train", "data.heldout=null"]
    recipe = write_async_recipe(tmp_path)
    assert main(["train", str(recipe), f"out={tmp_path / 'run'}", *data, "flow.host=0.0.0.0"]) == 2
    assert "WHETSTONE_FLOW_TOKEN" in capsys.readouterr().err
    assert not (tmp_path / "micro").exists()


def test_a_run_without_roles_has_none_to_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["role", "flow", str(write_recipe(tmp_path))]) == 2
    assert "has no section `flow`" in capsys.readouterr().err


def test_models_of_servers_are_loaded_into_host_memory(tmp_path: Path) -> None:
    elsewhere = ["model.device=meta"]
    for kind, device in (("vllm", "cpu"), ("sglang", "cpu"), ("torch", "meta")):
        recipe = load_recipe(write_async_recipe(tmp_path), [*elsewhere, f"engine.kind={kind}"])
        assert replica_model(recipe).model.device.type == device


@pytest.mark.process
def test_a_publisher_on_all_addresses_offers_a_reachable_one() -> None:
    assert reachable_address("http://127.0.0.1:8090", "10.0.0.7", 7) == "10.0.0.7:7"
    own = reachable_address("http://127.0.0.1:8090", "0.0.0.0", 7)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        away = probe.connect_ex(("192.0.2.1", 9)) == 0
    assert own.startswith("127.") is not away
    said = replica_command("0.0.0.0", 8000, "r.yaml")
    assert said == (
        f"WHETSTONE_FLOW_TOKEN=… whetstone role rollout r.yaml --flow http://{socket.gethostname()}:8000"
    )
