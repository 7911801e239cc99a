"""``--dry-run`` makes every check that needs no network, and refuses what a run would only find out later."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from tests.run.roles_by_hand import until, write_async_recipe
from tests.warm_command import WarmCommand
from whetstone.cli.main import main
from whetstone.run import preflight

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
TINY = ROOT / "recipes" / "tiny.yaml"
ADD = {
    "id": "add",
    "statement": "Add.",
    "tests": {"kind": "call", "function": "f", "cases": [{"args": [[1]], "expected": 1}]},
    "source": "test",
}
REFUSED = tomllib.loads((Path(__file__).parent / "refused.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    wrong = {**ADD, "references": [{"language": "python", "source": "def f(x):\n    return 2"}]}
    contents = {"CPP": json.dumps({**ADD, "language": "cpp"}), "WRONG": json.dumps(wrong)}
    graded = {**ADD, "id": "graded", "compare": {"mode": "grader:nowhere"}}
    contents["GRADER"] = f"{json.dumps(ADD)}\n{json.dumps(graded)}"
    contents["TORN"] = f"{json.dumps(ADD)}\n{{"
    for name, content in contents.items():
        (folder / f"{name}.jsonl").write_text(content + "\n", encoding="utf-8")
    (folder / "MAMBA").mkdir()
    (folder / "MAMBA" / "config.json").write_text('{"model_type": "mamba"}')
    return folder


@pytest.mark.drawn(5)
@pytest.mark.parametrize("what", REFUSED)
def test_what_would_stop_a_run_is_refused(
    what: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delenv("WHETSTONE_FLOW_TOKEN", raising=False)
    override, words = REFUSED[what]
    places = {name: str(files / name) for name in ("CPP.jsonl", "WRONG.jsonl", "TORN.jsonl", "GRADER.jsonl")}
    places |= {"MAMBA": str(files / "MAMBA"), "PYTHON": sys.executable, "LONG_NAME": "x" * 300}
    for name, place in places.items():
        override = override.replace(name, place)
    assert main(["train", str(TINY), "--dry-run", "judge.workers=1", *override.split("  ")]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


OFFICIAL = "sets: [{benchmark: humaneval, data: BENCH, harness: official}]"
MISSING = "`evaluation.sets` (humaneval): `harness`: harness `official` needs the package whetstone-graders"
# The packages that are not installed, a recipe that needs them, and what is said.
NOT_INSTALLED = {
    "graders": (f"evaluation={{{OFFICIAL}}}", MISSING),
    "graders of a stage": (
        f"stages=[{{name: a}}, {{name: b, evaluation: {{{OFFICIAL}}}}}]",
        f"stage `b`: {MISSING}",
    ),
    "peft": (
        "trainer.lora={rank: 4}",
        "`trainer.lora` needs a library that is not here: pip install -c constraints.txt -e '.[lora]'",
    ),
    "starlette": (
        "flow={staleness: 1}",
        "`flow` needs a library that is not here: pip install -c constraints.txt -e '.[serve]'",
    ),
    "httpx2": (
        "judge.url=http://127.0.0.1:1",
        "`judge.url` needs a library that is not here: pip install -c constraints.txt -e '.[serve]'",
    ),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("action", ["--dry-run", "run"])
@pytest.mark.parametrize("package", NOT_INSTALLED)
def test_a_missing_package_is_named_before_the_data_are_built(
    package: str,
    action: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``data.build`` may take hours, and a run that needs the package would stop after it."""
    override, words = NOT_INSTALLED[package]
    if package.startswith("graders"):
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: EntryPoints([]))
    else:
        real = preflight.find_spec
        monkeypatch.setattr(preflight, "find_spec", lambda name: None if name == package else real(name))
    bench = tmp_path / "bench.jsonl"
    bench.write_text(json.dumps(ADD), encoding="utf-8")
    built = tmp_path / "sets" / "builtin"
    data = [f"data={{build: {ROOT / 'recipes/data/builtin.yaml'}, train: {built}, heldout: null}}"]
    more = ["--dry-run"] if action == "--dry-run" else []
    out = [f"out={tmp_path / 'run'}", override.replace("BENCH", str(bench))]
    assert main(["train", str(TINY), *data, *out, *more]) == 2
    assert words in capsys.readouterr().err
    assert not built.exists()


def test_all_faults_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["data.train=no-such.jsonl", "out=/", "judge.environment=nowhere", "report.wandb=x"]
    assert main(["train", str(TINY), "--dry-run", *wrong]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in ("no-such.jsonl", "`out`", "judge.environment", "report.wandb"))


def test_a_good_recipe_is_printed_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(TINY), "--dry-run", "seed=7", "judge.workers=1"]) == 0
    said = capsys.readouterr()
    assert "seed: 7" in said.out
    assert "grad_clip" in said.out
    assert "references: 16 of a sample of 16 are accepted" in said.err
    assert not list(tmp_path.iterdir())


def test_a_dry_run_names_the_checks_that_need_a_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["train", "recipes/deepcoder-1.5b.yaml", "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "not checked: the problems of sets/deepcoder, which" in said


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from whetstone.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ["train", str(TINY), "--dry-run"],
            0,
            "not checked: memory, problems and prompts, because torch",
        ),
        (["train", str(TINY), "data.train=no-such.jsonl"], 2, "`data.train`: no-such.jsonl"),
        (["train", str(TINY), "sampling.max_tokens=512"], 2, "`sampling.max_tokens` is 512"),
        (["train", str(TINY), "engine={kind: vllm, options: {python: /no}}"], 2, "/no: no such interpreter"),
        (["train", str(TINY), "out=/"], 2, "`out`: / contains"),
        # Before it builds its data, which takes hours and a network.
        (["train", "astraflow-qwen3-8b-m2po-full", "engine.options.python=/no"], 2, "/no: no such"),
        (
            [
                "role",
                "trainer",
                str(TINY),
                "flow={}",
                "model.dtype=float32",
                "data.train=no.jsonl",
                "--flow",
                "x",
            ],
            2,
            "`data.train`: no.jsonl",
        ),
    ],
)
def test_startup_errors_need_no_torch(arguments: list[str], status: int, words: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.drawn(1)
@pytest.mark.parametrize("role", ["rollout", "trainer"])
def test_a_role_meets_its_flow_before_it_loads_torch(role: str, tmp_path: Path) -> None:
    recipe, environment = write_async_recipe(tmp_path), {"WHETSTONE_FLOW_TOKEN": "right"}
    with WarmCommand("role", "flow", str(recipe), f"out={tmp_path / 'run'}", environment=environment) as flow:
        until(lambda: "listening" in flow.printed("err"), "the flow to listen", flow)
        first = flow.printed("err").splitlines()
        port = next(json.loads(line)["port"] for line in first if '"listening"' in line)
        where = ["--flow", f"http://127.0.0.1:{port}"]
        command = [sys.executable, "-c", WITHOUT_TORCH, "role", role, str(recipe), *where]
        without = {k: v for k, v in os.environ.items() if k != "WHETSTONE_FLOW_TOKEN"}
        done = subprocess.run(command, capture_output=True, text=True, env=without)
    assert done.returncode == 2, done.stderr
    assert "set WHETSTONE_FLOW_TOKEN to the token that the flow was started with" in done.stderr
