"""The planned memory of a run is what it takes, and what cannot fit is refused with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.families.tiny_families import FAMILIES, tiny_family
from tests.run.memory_cases import CASES, SHARDED, Case, measured, measured_rank, planned, planned_rank
from tests.run.recipe_memory import PLANNED, recipe_plans, recipe_table
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.shipped_recipes import shipped_names
from whetstone.engine.architecture import OWN_ATTENTION
from whetstone.run import model_memory
from whetstone.run.memory_plan import memory_errors, plan_memory
from whetstone.run.model_memory import ENGINE_WEIGHTS, GENERATION
from whetstone.run.recipe import Recipe, load_recipe
from whetstone.run.run_dir import check_recipe, write_recipe

TINY = Path(__file__).parents[2] / "recipes" / "tiny.yaml"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", CASES)
def test_the_planned_peak_is_within_a_tenth_of_the_measured_one(name: str) -> None:
    plan, found = planned(CASES[name]), measured(CASES[name])
    step = max(size for phase, size in plan.items() if phase != GENERATION)
    assert step == pytest.approx(found["step"], rel=0.1)
    assert max(plan.values()) == pytest.approx(max(found.values()), rel=0.1)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", SHARDED)
def test_the_planned_peak_of_a_rank_is_within_a_tenth_of_the_measured_one(name: str) -> None:
    assert planned_rank(*SHARDED[name]) == pytest.approx(measured_rank(*SHARDED[name]), rel=0.1)


@pytest.mark.drawn(6)
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - OWN_ATTENTION))
def test_every_family_has_a_plan(family: str) -> None:
    model = tiny_family(family)
    rows = training_rows(model.config)
    weights = sum(parameter.numel() * 2 for parameter in model.parameters())
    assert weights <= rows["weights"] <= weights + 4096  # and buffers
    assert rows["activations"] > 0


def training_rows(config: Any, *, ranks: int = 1, **trainer: Any) -> dict[str, int]:
    """The bytes of each row while a model of this configuration is trained in bf16."""
    recipe = Case("llama", dtype="bfloat16", trainer={"micro_batch_tokens": 256, **trainer}).recipe(ranks)
    device = recipe.model.model_copy(update={"device": "auto"})  # offload is for accelerators
    [plan] = plan_memory(recipe.model_copy(update={"model": device}), {recipe.environment.models[0]: config})
    assert plan.total(GENERATION) > 0
    return {name: row["training"] for name, row in plan.rows.items()}


@pytest.mark.extended
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_few_equal_layers_give_the_memory_of_many(
    checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CASES["Llama"].config()
    config.num_hidden_layers = 12
    few = training_rows(config, activation_checkpointing=checkpointing)
    monkeypatch.setattr(model_memory, "_FEW_LAYERS", (12, 12))
    assert training_rows(config, activation_checkpointing=checkpointing) == few


def test_options_that_save_memory_lower_the_plan() -> None:
    config, optimizer = CASES["Llama"].config(), "masters, gradients, moments"
    usual = training_rows(config)
    checkpointed = training_rows(config, activation_checkpointing=True)
    assert checkpointed["activations"] < 0.3 * usual["activations"]
    offloaded = training_rows(config, offload=True)
    assert optimizer not in offloaded
    assert offloaded["weights"] == usual["weights"]
    eight = training_rows(config, ranks=8)
    assert eight["weights"] == pytest.approx(2 * usual["weights"] / 8, rel=0.01)
    # The shards of several ranks are the masters, so gradients and two moments are left.
    assert eight[optimizer] == pytest.approx(usual[optimizer] * 3 / 4 / 8, rel=0.01)
    adapters = training_rows(config, lora={"rank": 2, "targets": ["q_proj"]})
    assert adapters[optimizer] < 0.01 * usual[optimizer]


# Recipes


def test_every_recipe_for_accelerators_names_its_machine() -> None:
    laptop = {"tiny", "tiny-verifier", "tour", "quickstart", "async-quickstart"}
    laptop |= {"quickstart-ssd", "quickstart-rejection-sft"}
    assert set(PLANNED) == set(shipped_names()) - laptop


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", PLANNED)
def test_a_recipe_fits_the_machine_that_it_names(name: str) -> None:
    for _, plan in recipe_plans(name):
        assert plan.excess <= 0, "\n".join(plan.lines())


@pytest.mark.extended
def test_the_page_has_the_figures_of_the_plan() -> None:
    page = (TINY.parents[1] / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert "\n".join(recipe_table(PLANNED)) in page, "benchmarks/memory.py --recipes prints the table"


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("archercoder-dapo-1.5b", 104),
        ("scalebox-deepseek-r1-distill-1.5b", 61),
        ("scalebox-qwen3-4b", 132),
        ("scalebox-qwen3-30b-a3b", 199),
    ],
)
def test_activations_without_checkpointing_match_independent_counts(name: str, gigabytes: float) -> None:
    [(_, plan)] = recipe_plans(name, ["trainer.activation_checkpointing=false"])
    assert plan.rows["activations"]["training"] == pytest.approx(gigabytes * 1e9, rel=0.05)


# The dry run


def refusals(*overrides: str) -> list[str]:
    return memory_errors(load_recipe(TINY, overrides), lambda _: None)


@pytest.mark.extended
@pytest.mark.process
def test_the_dry_run_prints_the_memory_of_each_device_and_the_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", str(TINY), "--dry-run", "machine={devices: 4, memory_gb: 24}"]) == 0
    said = capsys.readouterr().err
    assert "memory of each of 4 devices (trainer and engine), in GB of 24 GB:" in said
    table = {line.split("  ")[1]: line for line in said.splitlines() if line.startswith("  ")}
    assert table["activations"].endswith("trainer.activation_checkpointing, trainer.micro_batch_tokens")
    assert re.search(r"total +\d.* 22\.8 may be used", said)


@pytest.mark.extended
@pytest.mark.process
def test_the_dry_run_plans_another_machine_although_something_is_missing_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["train", str(TINY), "--dry-run", "machine.memory_gb=0.05", "judge.environment=nowhere"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "there is no environment `nowhere`" in said
    assert "memory: training needs" in said


def test_the_refusal_names_the_keys_of_the_largest_part() -> None:
    [fault] = refusals("machine.memory_gb=0.2")
    start = r"memory: training needs (\S+) GB on the device \(trainer and engine\), and 0.19 of 0.2 GB may be"
    found = re.match(start, fault)
    assert found, fault
    assert float(found[1]) > 0.19
    assert "activations, is changed by trainer.activation_checkpointing, trainer.micro_batch_tokens" in fault
    assert "use more devices (torchrun's --nproc-per-node or `flow.ranks`" in fault
    assert refusals("machine.memory_gb=0.2", "trainer.micro_batch_tokens=512") == []


@pytest.mark.extended
def test_a_cache_without_room_for_a_reply_is_refused() -> None:
    [fault] = refusals("engine.options={cache_mb: 1}", "machine.memory_gb=10")
    assert "raise `engine.options.cache_mb`" in fault


@pytest.mark.extended
def test_a_stage_that_does_not_fit_is_named() -> None:
    stages = "stages=[{name: small}, {name: large, trainer: {micro_batch_tokens: 100000}}]"
    prompts = ["trainer.prompts_per_step=256", "machine.memory_gb=4", "engine.options={cache_mb: 200}"]
    [fault] = refusals(stages, *prompts)
    assert fault.startswith("stage `large`: memory: training needs ")


def test_the_error_for_a_missing_model_names_the_download_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    said: list[str] = []
    assert memory_errors(load_recipe("scalebox-qwen3-4b"), said.append) == []
    [line] = said
    assert "`hf download Qwen/Qwen3-4B-Instruct-2507 config.json`" in line


def test_the_own_attention_of_a_model_has_no_plan() -> None:
    said: list[str] = []
    assert memory_errors(load_recipe(TINY, ["trainer.attention=model"]), said.append) == []
    [line] = said
    assert line.startswith("not checked: the memory: there is no plan for a model's own attention")


def test_devices_beyond_those_of_the_machine_are_refused() -> None:
    with pytest.raises(UserError, match=r"`flow\.gpus` names 8 devices, and `machine\.devices` is 4"):
        recipe_plans("astraflow-qwen3-8b-m2po-full", ["machine.devices=4"])


def test_a_server_that_cannot_hold_its_weights_is_refused() -> None:
    few = "engine.options={tensor_parallel: 1, arguments: [--gpu-memory-utilization=0.5]}"
    with pytest.raises(UserError, match=r"gets 0.5 of 64 GB on a device, and needs 61.1 for weights"):
        recipe_plans("scalebox-qwen3-30b-a3b", [few])


@pytest.mark.extended
def test_a_server_takes_its_share_while_the_trainer_works_only_if_it_does_not_sleep() -> None:
    [(_, asleep)] = recipe_plans("scalebox-qwen3-30b-a3b")
    [(_, awake)] = recipe_plans("scalebox-qwen3-30b-a3b", ["engine.placement=apart"])
    assert awake.total(GENERATION) == asleep.total(GENERATION)
    assert awake.total("training") - asleep.total("training") == pytest.approx(0.6 * 64e9)


def test_a_deterministic_run_is_planned_with_the_embedded_engine() -> None:
    def rows(*overrides: str) -> set[str]:
        [(_, plan)] = recipe_plans(
            "code-r1-grpo-7b-12k", ["machine={devices: 8, memory_gb: 141}", *overrides]
        )
        return {name for name, row in plan.rows.items() if row.get("training")}

    assert ENGINE_WEIGHTS not in rows()
    assert ENGINE_WEIGHTS in rows("deterministic=true")


def test_a_resumed_run_may_be_planned_for_another_machine(tmp_path: Path) -> None:
    recipe = load_recipe(TINY, [f"out={tmp_path}"])
    write_recipe(tmp_path, recipe)
    changed: Recipe = load_recipe(TINY, [f"out={tmp_path}", "machine={devices: 2, memory_gb: 40}"])
    check_recipe(tmp_path, changed)
