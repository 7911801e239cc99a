"""`whetstone push`: what a hub receives, with which card, and what every failure says."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.report.hub_stand_in import LARGE, TOKEN, HubStandIn, Repository, hub
from tests.report.synthetic_run import write_results, write_run
from whetstone.cli.main import main
from whetstone.data.builtin import shipped_problems
from whetstone.data.card import SourceRecord
from whetstone.data.dataset import DatasetWriter
from whetstone.report.starts import RunStart, keep_start

pytestmark = pytest.mark.process
MODEL = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 40, "sub/tokenizer.json": b"[]"}
TRAINING = {
    "trainer/.metadata": b"",
    "trainer/__0_0.distcp": b"moments",
    "state.json": b'{"step": 4, "state": {}}',
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubStandIn]:
    with hub() as running:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", running.url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield running


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of six steps with a checkpoint of the fourth."""
    folder = write_run(tmp_path / "demo")
    for step, right in ((0, 1), (4, 3)):
        write_results(folder, step, [right + number % 2 for number in range(30)])
    keep_start(folder, RunStart(0.0, "train", "the-host", "", {"torch": "2.11"}, "tiny", {"seed": (0, 3)}))
    checkpoint = folder / "checkpoints" / "step-4"
    for name, data in {**MODEL, **TRAINING}.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_bytes(data)
    listed = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in {**MODEL, **TRAINING}.items()
    }
    (checkpoint / "manifest.json").write_text(json.dumps({"files": listed}))
    return folder


@pytest.fixture
def problem_set(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "set") as writer:
        writer.describe([SourceRecord("apps", "APPS | a set", "MIT", "codeparrot/apps", "0" * 40, [], 9, 3)])
        for problem in [*shipped_problems("train")][:3]:
            problem.meta["licence"] = "MIT"
            writer.add(problem, "train")
    return tmp_path / "set"


def card_of(text: str | bytes) -> tuple[dict[str, Any], str]:
    """The metadata of a card, and the rest."""
    _, metadata, body = (text if isinstance(text, str) else text.decode()).split("---\n", 2)
    return yaml.safe_load(metadata), body


def test_the_endpoint_and_the_token_come_from_the_environment(server: HubStandIn, run: Path) -> None:
    given = {"HF_ENDPOINT": server.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "whetstone", "push", "run", str(run), "demo"],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{server.url}/datasets/me/demo (private): ")
    assert TOKEN not in done.stdout + done.stderr


def test_a_checkpoint_becomes_a_private_model_with_the_figures_of_its_run(
    server: HubStandIn, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", "model", str(run / "step-4"), "me/tiny", "--licence", "mit"]) == 0
    assert capsys.readouterr().out.startswith(f"{server.url}/me/tiny (private): ")
    made = server.repositories["models/me/tiny"]
    assert made.private
    assert {name: made.files[name] for name in MODEL} == MODEL
    assert made.files.keys() - MODEL.keys() == {"README.md", "recipe.yaml"}
    assert list(server.objects.values()) == [MODEL["model.safetensors"]]
    metadata, body = card_of(made.files["README.md"])
    assert (metadata["license"], "base_model" in metadata) == ("mit", False)
    assert "| model | models/SmolLM2-135M-Instruct |" in body
    assert "| problems | step 0 | step 4 | change |" in body, "later evaluations are not of this model"
    assert "| held-out, pass@1 | 27.0% \\[21.0, 33.0\\] | 59.3% \\[53.3, 65.3\\] | +50.0 \\[" in body
    assert "| steps | 4 of 6 |" in body
    assert "the recipe tiny:\n\n| key | value |\n| --- | --- |\n| seed | 3 |" in body
    assert "the-host" not in str(made.files)


def test_a_dry_run_lists_files_and_sizes_and_asks_the_hub_nothing(
    server: HubStandIn, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", "run", str(run), "demo", "--dry-run"]) == 0
    said = capsys.readouterr().out
    metrics = (run / "metrics.jsonl").stat().st_size
    assert f"{metrics:,}  metrics.jsonl" in said
    assert card_of(said[said.index("---\n") :])[0]["configs"][0]["data_files"][0]["path"] == "metrics.jsonl"
    assert server.asked == []


def test_a_problem_set_has_a_data_card_and_its_rows(
    server: HubStandIn, problem_set: Path, tmp_path: Path
) -> None:
    assert main(["push", "set", str(problem_set), "me/apps"]) == 0
    made = server.repositories["datasets/me/apps"]
    assert made.private
    assert {name: made.files[name] for name in made.files if name != "README.md"} == {
        file.name: file.read_bytes() for file in problem_set.iterdir()
    }
    metadata, body = card_of(made.files["README.md"])
    assert metadata["license"] == ["mit"]
    assert metadata["configs"][0]["data_files"] == [{"split": "train", "path": "train.parquet"}]
    assert f"| apps | APPS \\| a set | codeparrot/apps at {'0' * 40} | MIT | 9 | 3 |" in body
    assert main(["data", "convert", str(problem_set), str(tmp_path / "three.jsonl")]) == 0
    assert main(["push", "set", str(tmp_path / "three.jsonl"), "three"]) == 0
    metadata, body = card_of(server.repositories["datasets/me/three"].files["README.md"])
    assert metadata["configs"][0]["data_files"] == [{"split": "train", "path": "three.jsonl"}]
    assert "train: 3;" in body


def test_a_run_has_its_records_and_neither_replies_nor_the_host(server: HubStandIn, run: Path) -> None:
    assert main(["push", "run", str(run), "me/demo"]) == 0
    made = server.repositories["datasets/me/demo"].files
    evaluations = {f"evaluations/step-{step}-heldout/evaluation.json" for step in (0, 4)}
    assert made.keys() == {"README.md", "recipe.yaml", "metrics.jsonl", *evaluations}
    assert made["metrics.jsonl"] == (run / "metrics.jsonl").read_bytes()
    assert "| held-out, pass@1 | 27.0% \\[21.0, 33.0\\] | 7" in card_of(made["README.md"])[1]
    (run / "recipe.yaml").unlink()
    assert main(["push", "run", str(run), "me/old"]) == 0
    assert "recipe.yaml" not in server.repositories["datasets/me/old"].files
    assert "recipe.yaml" not in str(server.repositories["datasets/me/old"].files["README.md"])


def test_an_existing_repository_is_replaced_as_a_whole_and_only_if_asked(
    server: HubStandIn, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.repositories["datasets/me/demo"] = made = Repository(True, {"old.txt": b"old"})
    assert main(["push", "run", str(run), "me/demo"]) == 2
    assert "is already there, with 1 files; give --replace" in capsys.readouterr().err
    assert made.files == {"old.txt": b"old"}
    assert main(["push", "run", str(run), "me/demo", "--replace"]) == 0
    assert "old.txt" not in made.files
    assert made.commits == 1
    made.private = False
    assert main(["push", "run", str(run), "me/demo", "--replace"]) == 2
    assert "is public; give --public" in capsys.readouterr().err
    assert main(["push", "run", str(run), "me/new", "--public"]) == 0
    assert not server.repositories["datasets/me/new"].private


def test_a_failed_upload_goes_on_where_it_was(
    server: HubStandIn, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    words = ["push", "model", str(run), "tiny"]
    server.failing = {"/commit/"}
    assert main(words) == 2
    assert "answers 500, out of order; run the same command again" in capsys.readouterr().err
    server.failing.clear()
    assert main(words) == 0, "an empty repository of one's own needs no --replace"
    assert server.repositories["models/me/tiny"].commits == 1
    assert len([asked for asked in server.asked if asked.startswith("PUT")]) == 1
    assert len(MODEL["model.safetensors"]) > LARGE


def test_a_model_folder_keeps_its_own_card(
    server: HubStandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data in {
        "config.json": b"{}",
        ".cache/x": b"x",
        ".env": b"key",
        "README.md": b"# mine\n",
    }.items():
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_bytes(data)
    assert main(["push", "model", str(tmp_path / "model"), "a", "--licence", "mit"]) == 2
    assert "README.md: is the card; state the licence" in capsys.readouterr().err
    assert main(["push", "model", str(tmp_path / "model"), "a"]) == 0
    assert server.repositories["models/me/a"].files == {"config.json": b"{}", "README.md": b"# mine\n"}
    (tmp_path / "model" / "README.md").unlink()
    assert main(["push", "model", str(tmp_path / "model"), "b", "--base-model", "org/base"]) == 0
    metadata, body = card_of(server.repositories["models/me/b"].files["README.md"])
    assert metadata["base_model"] == "org/base"
    assert "How it was trained is not known." in body


def test_the_card_of_the_base_model_tells_its_licence(
    server: HubStandIn, run: Path, tmp_path: Path, problem_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Base\n")
    (run / "recipe.yaml").write_text(f"model: {{path: {base}}}\ndata: {{train: {problem_set}}}\n")
    assert main(["push", "model", str(run), "a"]) == 0
    metadata, body = card_of(server.repositories["models/me/a"].files["README.md"])
    assert metadata["license"] == "apache-2.0"
    assert "base_model" not in metadata, "a folder of this machine is no model of the hub"
    assert "Licences of the training problems: MIT: 3." in body
    cached = tmp_path / "cache" / "models--org--base"
    for name, text in (("refs/main", "0" * 40), (f"snapshots/{'0' * 40}/config.json", "{}")):
        (cached / name).parent.mkdir(parents=True)
        (cached / name).write_text(text)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    (run / "recipe.yaml").write_text("model: {path: org/base}\n")
    assert main(["push", "model", str(run), "b"]) == 0
    assert card_of(server.repositories["models/me/b"].files["README.md"])[0]["base_model"] == "org/base"


def unplug(server: HubStandIn, patch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        patch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{probe.getsockname()[1]}")


def offline(server: HubStandIn, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


Setting = Callable[[HubStandIn, pytest.MonkeyPatch], None]
FAILURES: dict[str, tuple[Setting, list[str], str]] = {
    "no token": (
        lambda s, p: p.delenv("HF_TOKEN"),
        ["me/x"],
        "no token; log in (`hf auth login`), or set HF_TOKEN",
    ),
    "a wrong token": (
        lambda s, p: p.setenv("HF_TOKEN", "hf_wrong"),
        ["me/x"],
        "answers 401, Unauthorized; log in again (`hf auth login`), or set HF_TOKEN",
    ),
    "a name of somebody else": (
        lambda s, p: None,
        ["you/x"],
        "403, no rights in the namespace you: Bearer [token]; use a token with the right to write there",
    ),
    "a private repository of somebody else": (
        lambda s, p: s.repositories.update({"datasets/you/x": Repository(True, {"a": b""})}),
        ["you/x", "--replace"],
        "403, no rights in the namespace you",
    ),
    "a public repository of somebody else": (
        lambda s, p: s.repositories.update({"datasets/you/x": Repository(False, {"a": b""})}),
        ["you/x", "--replace", "--public"],
        "no rights; use a token with the right to write there, or a name of your own",
    ),
    "no network": (unplug, ["me/x"], "cannot be reached ([Errno 111] Connection refused); check the network"),
    "no network, by choice": (offline, ["me/x"], "HF_HUB_OFFLINE is set; unset it"),
    "a licence that the hub does not know": (
        lambda s, p: None,
        ["me/x", "--licence", "mine"],
        '"license" must be one of …); change it',
    ),
    "no name": (lambda s, p: None, ["me/x/y"], "me/x/y: not the name of a repository"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_names_its_remedy_and_never_the_token(
    case: str,
    server: HubStandIn,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    setting, words, said = FAILURES[case]
    setting(server, monkeypatch)
    assert main(["push", "run", str(run), *words]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert TOKEN not in out + err
    assert "hf_wrong" not in out + err
    assert not any(one.commits for one in server.repositories.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model", "{}/nothing", "a"], "no checkpoint of a run"),
        (["set", "{}", "a"], "give a dataset folder or a problem file"),
        (["set", "builtin:train", "a"], "give a dataset folder or a problem file"),
        (["run", "{}", "a"], "use the folder of a run"),
    ],
)
def test_another_folder_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", *(word.format(tmp_path) for word in words), "--dry-run"]) == 2
    assert said in capsys.readouterr().err
