"""The identity of a run, computed from its recipe, and the rules of its flow."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whetstone.core.errors import UserError, did_you_mean
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.identity import Identity, identity_of
from whetstone.rollout.settings import FlowSection
from whetstone.run.recipe import Recipe, model_recipes

if TYPE_CHECKING:
    from whetstone.run.prepared_run import PreparedRun

_SHARED_SECTIONS = ("environment", "sampling", "algorithm", "warmup")
# Keys that all roles must share. The other keys of these sections may differ between hosts, such as the
# model's path.
_SHARED_KEYS = {
    "model": {"scratch", "dtype"},
    "trainer": {"prompts_per_step", "samples_per_prompt", "routing_replay"},
    "judge": {"max_cases", "fork_per_case", "score_shared_interpreter"},
    "flow": {"staleness", "batch_composition", "shares"},
}


def flow_section(recipe: Recipe) -> FlowSection:
    """Return the section ``flow``. Raises UserError if it is missing."""
    if recipe.flow is None:
        raise UserError(
            f"recipe `{recipe.name}` has no section `flow`: it is trained in one process by "
            "`whetstone train`; add "
            "`flow: {staleness: 1}` to the recipe for a run of several roles"
        )
    return recipe.flow


def run_identity(prepared: Mapping[str, PreparedRun]) -> Identity:
    """Return what all roles of a run share: recipe keys of its models, the problems and the tokenizers."""
    first, *others = prepared
    sections = _shared_settings(prepared[first])
    for name in others:
        sections |= {f"{name}.{key}": value for key, value in _shared_settings(prepared[name]).items()}
    return identity_of(sections, prepared[first].sets.train)


def _shared_settings(prepared: PreparedRun) -> dict[str, Any]:
    values = prepared.recipe.model_dump(
        mode="json", include={*_SHARED_SECTIONS, *_SHARED_KEYS, "seed", "deterministic"}
    )
    sections: dict[str, Any] = {
        name: value
        if name not in _SHARED_KEYS
        else {k: v for k, v in sorted(value.items()) if k in _SHARED_KEYS[name]}
        for name, value in values.items()
    }
    sections["tokenizer"] = None if prepared.tokenizer is None else _tokenizer_digest(prepared.tokenizer)
    return sections


def flow_rules(recipe: Recipe) -> FlowRules:
    """Return the rules for leasing prompts and composing batches."""
    flow, trainer = flow_section(recipe), recipe.trainer
    specs = {name: each.algorithm for name, each in model_recipes(recipe).items()}
    return FlowRules(
        models=tuple(specs),
        prompts_per_step=trainer.prompts_per_step,
        staleness=flow.staleness,
        batch_composition=flow.batch_composition,
        shares=flow.shares,
        refill_rounds=max(spec.refill_rounds for spec in specs.values()),
        unfiltered=tuple(name for name, spec in specs.items() if not spec.drop_zero_variance),
        lease_s=flow.lease_s,
        silence_s=flow.silence_s,
    )


def _tokenizer_digest(tokenizer: Any) -> str:
    """Return a digest of the tokenizer's tables and chat template, independent of its folder."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    tables = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(f"{tables}\n{tokenizer.chat_template}".encode()).hexdigest()


def resolve_model(models: Sequence[str], model: str | None) -> str:
    """Return the model that ``--model`` names, or the run's first. Raises UserError for an unknown name."""
    if model is None or model in models:
        return model or models[0]
    raise UserError(f"--model: unknown model `{model}`{did_you_mean(model, models)} ({', '.join(models)})")
