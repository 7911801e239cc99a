"""``auto``: a run keeps the engine and the dtype that it began with, on whatever machine it is resumed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from tests.run.tiny_recipe import write_recipe
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.engine import device as device_module
from whetstone.engine.settings import EngineSection
from whetstone.run.auto import choose_engine, chosen_overrides, with_choices, with_recorded_choices
from whetstone.run.recipe import Recipe, load_recipe, partner_recipe

BOTH = "engine={kind: auto, placement: shared, options: {python: %s, arguments: [--x], max_batch: 3}}"


def machine(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Make ``auto`` a device of this kind."""
    real = device_module.pick_device

    def pick(device: str) -> torch.device:
        return torch.device(kind, 0) if device == "auto" else real(device)

    monkeypatch.setattr(device_module, "pick_device", pick)


def python_with_vllm(folder: Path, *, package: bool = True, cuda: bool = True) -> Path:
    """An interpreter that says whether it has vLLM, and whether its torch is built for the CPU."""
    file = folder / "python"
    absent = int(not package)
    file.write_text(f'#!/bin/sh\ncase "$2" in *find_spec*) exit {absent};; *) echo {cuda};; esac\n')
    file.chmod(0o755)
    return file


@pytest.mark.process
@pytest.mark.parametrize(
    ("device", "package", "cuda", "kind", "reason"),
    [
        ("cuda", True, True, "vllm", "there are a CUDA device and vLLM"),
        ("cuda", True, False, "torch", "built for the CPU"),
        ("cuda", False, True, "torch", "has no package `vllm`"),
        ("cpu", True, True, "torch", "there is no CUDA device"),
    ],
)
def test_vllm_is_chosen_where_cuda_and_the_package_exist(
    device: str,
    package: bool,
    cuda: bool,
    kind: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, device)
    python = python_with_vllm(tmp_path, package=package, cuda=cuda)
    section = EngineSection(kind="auto", options={"python": str(python)})
    chosen, because = choose_engine(section, "auto")
    assert (chosen, reason in because) == (kind, True)
    assert choose_engine(section, "auto", "of this") == ("torch", "of this")


def chosen(folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> Recipe:
    """A recipe as it is resolved where CUDA and vLLM exist."""
    machine(monkeypatch, "cuda")
    words = ["deterministic=false", BOTH % python_with_vllm(folder), *overrides]
    return with_choices(load_recipe(write_recipe(folder), words), lambda text: None)


@pytest.mark.process
def test_the_chosen_engine_gets_its_own_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = chosen(tmp_path, monkeypatch, f"out={tmp_path / 'run'}").engine
    assert (served.kind, served.placement) == ("vllm", "shared")
    assert served.options == {"python": str(tmp_path / "python"), "arguments": ["--x"]}
    embedded = chosen(tmp_path, monkeypatch, "deterministic=true", f"out={tmp_path / 'run'}").engine
    assert (embedded.kind, embedded.placement, embedded.options) == ("torch", "apart", {"max_batch": 3})


@pytest.mark.process
def test_a_second_model_has_the_engine_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = "verifier={engine: {options: {arguments: [--y], max_batch: 4}}}"
    apart = ("engine.placement=apart", "environment.kind=codegen_verifier", "evaluation={}")
    apart += ("deterministic=false", "flow={staleness: 0}")
    recipe = chosen(tmp_path, monkeypatch, *apart, own, f"out={tmp_path / 'run'}")
    assert recipe.engine.options["arguments"] == ["--x"]
    partner = partner_recipe(recipe).engine
    assert (partner.kind, partner.options) == ("vllm", {"arguments": ["--y"]})
    with pytest.raises(UserError, match="leave it out for the engine of the first model"):
        load_recipe(write_recipe(tmp_path), [*apart, "verifier={engine: {kind: auto}}"])


@pytest.mark.extended
@pytest.mark.process
def test_a_resumed_run_keeps_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(write_recipe(tmp_path)), f"out={tmp_path / 'run'}", "deterministic=false", "warmup.steps=2"]
    words += ["model.device=cpu", BOTH % python_with_vllm(tmp_path)]
    assert main(["train", *words, "trainer.steps=1"]) == 0
    said = "sampling with engine `torch`, chosen by `engine.kind: auto`: there is no CUDA device"
    assert said in capsys.readouterr().out
    recorded = load_recipe(tmp_path / "run" / "recipe.yaml").engine
    assert (recorded.kind, recorded.options) == ("torch", {"max_batch": 3})

    monkeypatch.setattr(device_module, "pick_device", lambda device: torch.device("cuda", 0))
    recipe = load_recipe(words[0], words[1:])
    assert with_choices(recipe, lambda text: None).engine == recorded
    assert with_recorded_choices(recipe).engine == recorded
    monkeypatch.undo()
    assert main(["train", *words, "trainer.steps=2"]) == 0
    output = capsys.readouterr().out
    assert "sampling with engine `torch`, as at the start of this run" in output
    assert "from step 1" in output
    assert main(["train", *words[:-1], "engine.kind=sglang", "trainer.steps=2"]) == 2
    assert "engine.kind ('torch' there, 'sglang' now)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_bach": 3}, r"max_bach"),
        ({"pyton": "x"}, r"did you mean `python`|pyton"),
        ({"max_batch": 0}, "max_batch"),
        ({"max_context": 0}, "max_context"),
        ({"url": "http://127.0.0.1:1"}, r"set `engine\.kind` to `vllm` or `sglang`"),
    ],
)
def test_wrong_options_are_refused_whichever_engine_is_chosen(options: dict[str, object], said: str) -> None:
    with pytest.raises((ValidationError, UserError), match=said):
        EngineSection(kind="auto", options=options)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("engine.kind=auto", "add `engine.kind=vllm` or `engine.kind=torch`"),
        ("model.dtype=auto", "add `model.dtype=bfloat16` or `model.dtype=float32`"),
    ],
)
def test_roles_on_several_hosts_need_explicit_values_for_auto(
    override: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(write_recipe(tmp_path)), override, "flow={staleness: 0}"]
    for role in ("flow", "rollout", "trainer"):
        assert main(["role", role, *words]) == 2
        assert said in capsys.readouterr().err


def test_the_command_for_other_hosts_names_the_engine_with_its_options(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path), [BOTH % sys.executable, "deterministic=true"])
    shown = chosen_overrides(recipe, with_choices(recipe, lambda text: None))
    assert shown == """ 'engine={"kind": "torch", "options": {"max_batch": 3}}'"""


# The dtype


def processor(monkeypatch: pytest.MonkeyPatch, *, bf16: bool) -> None:
    """Make this machine one with or without bfloat16 instructions."""
    monkeypatch.setattr(device_module, "_cpu_computes_bf16", lambda: bf16)


def train(folder: Path, *overrides: str) -> int:
    words = ["model.device=cpu", "trainer.steps=1", "warmup.steps=2", *overrides]
    return main(["train", str(write_recipe(folder)), f"out={folder / 'run'}", *words])


@pytest.mark.extended
@pytest.mark.parametrize("began_with_bf16", [True, False])
def test_a_run_resumed_on_a_machine_of_the_other_kind_keeps_its_dtype(
    began_with_bf16: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dtype = "bfloat16" if began_with_bf16 else "float32"
    processor(monkeypatch, bf16=began_with_bf16)
    assert train(tmp_path, "model.dtype=auto") == 0
    assert f"computing in {dtype} on cpu, chosen by `model.dtype: auto`" in capsys.readouterr().out
    assert load_recipe(tmp_path / "run" / "recipe.yaml").model.dtype == dtype

    processor(monkeypatch, bf16=not began_with_bf16)
    assert train(tmp_path, "model.dtype=auto", "trainer.steps=2") == 0
    output = capsys.readouterr().out
    assert f"computing in {dtype} on cpu, as at the start of this run" in output
    assert ("has no bfloat16 instructions" in output) is began_with_bf16
    assert "from step 1" in output


@pytest.mark.extended
def test_another_explicit_dtype_is_refused_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    processor(monkeypatch, bf16=False)
    assert train(tmp_path, "model.dtype=auto") == 0
    assert train(tmp_path, "model.dtype=bfloat16", "trainer.steps=2") == 2
    assert "model.dtype ('float32' there, 'bfloat16' now)" in capsys.readouterr().err


def test_later_stages_take_the_dtype_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = "stages=[{name: short, trainer: {steps: 1}}, {name: long, trainer: {steps: 1}}]"
    words = ["model.dtype=auto", f"out={tmp_path / 'run'}", stages]
    recipe = load_recipe(write_recipe(tmp_path), words)
    first = tmp_path / "run" / "1-short"
    first.mkdir(parents=True)
    (first / "recipe.yaml").write_text(write_recipe(tmp_path).read_text())  # its dtype is float32
    processor(monkeypatch, bf16=True)
    assert with_choices(recipe, lambda text: None).model.dtype == "float32"
