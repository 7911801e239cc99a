"""Algorithms as a recipe names them: bounds, what null means, presets by file and by dotted path."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from whetstone.algorithm.algorithm import LossInputs
from whetstone.algorithm.loss import token_weights
from whetstone.algorithm.named import algorithm_class, algorithm_named, preset_names
from whetstone.core.errors import UserError
from whetstone.run.recipe import Recipe, dump_recipe, load_recipe

TINY = Path(__file__).parents[2] / "recipes" / "tiny.yaml"


def tiny(*overrides: str) -> Recipe:
    return load_recipe(TINY, overrides)


@pytest.mark.parametrize(
    ("override", "bound"),
    [
        ("algorithm.clip_low=-1", "greater than or equal to 0"),
        ("algorithm.clip_low=1.5", "less than or equal to 1"),
        ("algorithm.clip_high=-0.1", "greater than or equal to 0"),
        ("algorithm.clip_high=.inf", "finite"),
        ("algorithm.dual_clip=-3", "greater than 1"),
        ("algorithm.dual_clip=1", "greater than 1"),
        ("algorithm.kl_coef=.nan", "finite"),
        ("algorithm.kl_coef=-0.1", "greater than or equal to 0"),
        ("algorithm.refill_rounds=-2", "greater than or equal to 0"),
        ("algorithm.overlong_buffer=-1", "greater than or equal to 0"),
        ("algorithm.overlong_buffer=33", "at most 32"),
        ("algorithm.aggregation=null", "token_mean"),
        ("algorithm={preset: m2po, correction: tis}", "count twice"),
        ("algorithm={preset: archer, kl_in: reward}", "part of the loss"),
        ("algorithm={preset: rloo, mask_truncated: true}", "kl_in: loss"),
        ("algorithm={preset: grpo, truncated_in_baseline: false}", "mask_truncated"),
        ("algorithm={preset: dapo, overlong_buffer: 0, correction: {kind: icepop, low: 6}}", "must be below"),
        ("algorithm={preset: dapo, overlong_buffer: 0, correction: tsi}", "tis"),
        ("algorithm={preset: ssd, correction: tis}", "remove it"),
        ("algorithm={preset: ssd, kl_coef: 0.1}", "`kl_coef` is a setting of policy gradients"),
        ("algorithm={preset: ssd, whiten: true}", "`whiten` is a setting of policy gradients"),
        ("algorithm={preset: ssd, advantage: group_mean}", "`advantage` is a setting of policy gradients"),
        ("algorithm={preset: ssd, drop_zero_variance: true}", "`drop_zero_variance` is a setting of policy"),
        ("algorithm={preset: rejection_sft, refill_rounds: 1}", "`rejection_sft` is a cross-entropy"),
        ("algorithm={preset: rejection_sft, overlong_buffer: 4}", "`rejection_sft` is a cross-entropy"),
        (
            "algorithm={preset: ssd, mask_truncated: true, truncated_in_baseline: false}",
            "`truncated_in_baseline` is a setting of policy",
        ),
        ("algorithm={preset: ssd, sampling_weights: old}", "'start' or 'current'"),
        ("trainer.betas=[0.9, 1.5]", "less than 1"),
        ("trainer.betas=[-0.1, 0.9]", "greater than or equal to 0"),
        ("trainer.lr=.inf", "finite"),
        ("trainer.lr=0", "greater than 0"),
        ("trainer.eps=.nan", "finite"),
        ("trainer.weight_decay=-1", "greater than or equal to 0"),
        ("trainer.grad_clip=.inf", "finite"),
        ("trainer.steps=0", "greater than or equal to 1"),
        ("sampling.stop=['']", "at least 1 character"),
        ("sampling.temperature=.nan", "finite"),
        ("sampling.top_p=0", "greater than 0"),
        ("evaluation.wait_s=.inf", "finite"),
        ("evaluation.k=[]", "at least 1 item"),
        ("evaluation.k=[9]", "n >= 9"),
        ("warmup.lr=.nan", "finite"),
        ("seed=9223372036854775808", "less than"),
        ("name=''", "at least 1 character"),
    ],
)
def test_a_number_out_of_bounds_is_refused_with_its_key_and_bound(override: str, bound: str) -> None:
    with pytest.raises(UserError, match=bound) as refused:
        tiny(override)
    assert override.partition("=")[0] in str(refused.value) or "pass@9" in str(refused.value)


def test_missing_settings_have_the_values_of_the_preset() -> None:
    grpo, dapo = (
        tiny("algorithm={}").algorithm,
        tiny("algorithm={preset: dapo, overlong_buffer: 8}").algorithm,
    )
    assert (grpo.preset, grpo.kl_coef, grpo.aggregation) == ("grpo", 0.001, "sequence_mean")
    assert (dapo.refill_rounds, dapo.overlong_buffer, dapo.aggregation) == (3, 8, "token_mean")


def test_null_switches_optional_parts_off() -> None:
    off = "{preset: dapo, overlong_buffer: null, refill_rounds: null, drop_zero_variance: null}"
    dapo = tiny(f"algorithm={off}").algorithm
    assert (dapo.overlong_buffer, dapo.refill_rounds, dapo.drop_zero_variance) == (0, 0, False)
    assert tiny("algorithm={preset: grpo, kl_coef: null}").algorithm.kl_coef == 0.0
    assert algorithm_named("grpo", {"dual_clip": 3.0}).model_dump()["dual_clip"] == 3.0
    assert algorithm_named("grpo", {"dual_clip": None}).model_dump()["dual_clip"] is None
    decoupled = tiny("algorithm={preset: decoupled_ppo, correction: null}").algorithm
    assert decoupled.correction is None
    unclipped = algorithm_named("grpo", {"clip_low": None, "clip_high": None})
    inputs = random_inputs([3, 1, 4], seed=1)
    assert torch.equal(
        unclipped.loss(inputs).tokens, -(inputs.log_probs - inputs.old).exp() * inputs.advantages
    )


def test_a_correction_is_named_or_written_out() -> None:
    named = tiny("algorithm={preset: grpo, correction: icepop}").algorithm
    written = tiny("algorithm={preset: grpo, correction: {kind: icepop, low: 0.5, high: 5}}").algorithm
    assert named == written
    assert named.correction is not None


def test_the_recipe_of_an_earlier_run_reads_as_it_did() -> None:
    """Up to 0.1 recipe.yaml held every key, null for what the preset says."""
    keys = "advantage clip_low clip_high dual_clip aggregation kl_coef drop_zero_variance refill_rounds"
    earlier = dict.fromkeys([*keys.split(), "mask_truncated"]) | {"preset": "dapo", "overlong_buffer": 8}
    found = tiny(f"algorithm={yaml.safe_dump(earlier, default_flow_style=True)}").algorithm
    assert found == algorithm_named("dapo", {"overlong_buffer": 8})


@pytest.mark.parametrize("preset", preset_names())
def test_a_written_recipe_reads_back_as_the_same_algorithm(preset: str, tmp_path: Path) -> None:
    settings = "" if algorithm_class(preset).cross_entropy else ", overlong_buffer: 4, refill_rounds: 1"
    recipe = tiny(f"algorithm={{preset: {preset}{settings}}}")
    (tmp_path / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.yaml") == recipe
    assert recipe.algorithm.preset == preset


def test_a_misspelt_setting_is_compared_with_those_of_the_chosen_algorithm() -> None:
    with pytest.raises(UserError, match=r"did you mean `algorithm\.ratio_cap`"):
        tiny("algorithm={preset: cispo, ratio_cp: 3}")


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("gsop", "did you mean `gspo`"),
        ("tis", "`correction: tis`"),
        ("no_such_module.Mine", "PYTHONPATH"),
        ("whetstone.core.settings.Sampling", "not a subclass"),
        ("whetstone.algorithm.algorithm.Nothing", "Nothing"),
    ],
)
def test_an_algorithm_that_is_not_there_is_refused(preset: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        tiny(f"algorithm.preset={preset}")


def random_inputs(lengths: list[int], seed: int) -> LossInputs:
    draw = torch.Generator().manual_seed(seed)
    count = torch.tensor(lengths)
    log_probs, old, engine, reference = -torch.rand(4, sum(lengths), generator=draw, dtype=torch.float64)
    advantages = torch.randn(len(lengths), generator=draw, dtype=torch.float64).repeat_interleave(count)
    weights = token_weights(count, "token_mean", 9).repeat_interleave(count)
    replies = torch.arange(len(lengths)).repeat_interleave(count)
    values = [log_probs, old, engine, reference, -log_probs, advantages, weights, replies]
    return LossInputs(*values, lengths=count, whole=True)


@pytest.mark.parametrize("preset", preset_names())
def test_a_loss_called_token_by_token_needs_no_other_token(preset: str) -> None:
    """A chunk of logits at a time is only right for a loss that sees nothing of its neighbours."""
    algorithm, inputs = algorithm_named(preset), random_inputs([3, 1, 4], seed=1)
    inputs = replace(inputs, prepared=algorithm.prepare(inputs))
    whole = algorithm.loss(inputs).tokens
    assert whole.shape == inputs.log_probs.shape
    if algorithm.sees_whole_replies:
        with pytest.raises(RuntimeError, match="token_by_token"):
            algorithm.loss(part_of(inputs, slice(0, 2)))
        return
    parts = [algorithm.loss(part_of(inputs, slice(i, i + 2))).tokens for i in range(0, 8, 2)]
    assert torch.equal(torch.cat(parts), whole)


def part_of(inputs: LossInputs, part: slice) -> LossInputs:
    parts = {name: v[part] for name, v in vars(inputs).items() if name != "lengths" and torch.is_tensor(v)}
    return replace(inputs, **parts, whole=False)


def test_reply_mean_is_the_mean_over_each_tokens_reply() -> None:
    inputs = random_inputs([2, 1, 3], seed=0)
    found = inputs.reply_mean(torch.tensor([1.0, 3.0, 5.0, 1.0, 2.0, 6.0]))
    assert found.tolist() == [2.0, 2.0, 5.0, 3.0, 3.0, 3.0]


@pytest.mark.process
def test_a_recipe_with_any_preset_is_read_without_torch() -> None:
    import subprocess

    code = (
        "import sys; from whetstone.algorithm.named import algorithm_named, preset_names;"
        "[algorithm_named(name) for name in preset_names()]; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
