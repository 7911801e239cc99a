"""Which run a role is of, by its recipe: what all roles have alike, and by what rules their flow goes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whetstone.errors import UserError, did_you_mean
from whetstone.flow.identity import Identity, identity_of
from whetstone.flow.rules import Rules
from whetstone.flow.settings import FlowSection
from whetstone.launch.recipe import Recipe, recipes_of

if TYPE_CHECKING:
    from whetstone.launch.ahead import Ahead

_WHOLE = ("workflow", "sampling", "algorithm", "warmup")
_PARTS = {
    "model": {"scratch", "dtype"},
    "trainer": {"prompts_per_step", "samples_per_prompt"},
    "judge": {"max_cases", "fork_per_case", "score_shared_interpreter"},
    "flow": {"staleness", "shares"},
}
"""Of these sections the rest is a host's own, such as where the model lies, or one role's alone."""


def flow_section(recipe: Recipe) -> FlowSection:
    """The section ``flow``. Raises UserError where there is none."""
    if recipe.flow is None:
        raise UserError(
            f"recipe `{recipe.name}` has no section `flow`: its run is one process, `whetstone train`; write "
            "`flow: {staleness: 1}` into it for a run of several roles"
        )
    return recipe.flow


def run_identity(aheads: Mapping[str, Ahead]) -> Identity:
    """What every role of a run has alike: of the recipes of its models, the problems and the tokenizers."""
    first, *others = aheads
    sections = _alike(aheads[first])
    for name in others:
        sections |= {f"{name}.{key}": value for key, value in _alike(aheads[name]).items()}
    return identity_of(sections, aheads[first].sets.train)


def _alike(ahead: Ahead) -> dict[str, Any]:
    said = ahead.recipe.model_dump(mode="json", include={*_WHOLE, *_PARTS, "seed", "deterministic"})
    sections: dict[str, Any] = {
        name: value if name not in _PARTS else {k: v for k, v in sorted(value.items()) if k in _PARTS[name]}
        for name, value in said.items()
    }
    sections["tokenizer"] = None if ahead.tokenizer is None else _tokenizer_digest(ahead.tokenizer)
    return sections


def rules_of(recipe: Recipe) -> Rules:
    """How prompts are leased and batches made."""
    flow, trainer = flow_section(recipe), recipe.trainer
    specs = {name: each.algorithm for name, each in recipes_of(recipe).items()}
    return Rules(
        models=tuple(specs),
        prompts_per_step=trainer.prompts_per_step,
        staleness=flow.staleness,
        shares=flow.shares,
        refill_rounds=max(spec.refill_rounds for spec in specs.values()),
        unfiltered=tuple(name for name, spec in specs.items() if not spec.drop_zero_variance),
        lease_s=flow.lease_s,
        silence_s=flow.silence_s,
        most_failures=flow.most_failures,
    )


def _tokenizer_digest(tokenizer: Any) -> str:
    """By what it does: its tables and its chat template, not the folder that it is from."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    tables = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(f"{tables}\n{tokenizer.chat_template}".encode()).hexdigest()


def model_named(models: Sequence[str], model: str | None) -> str:
    """The model of a run that ``--model`` names, or the first. Raises UserError for an unknown name."""
    if model is None or model in models:
        return model or models[0]
    raise UserError(f"--model: unknown model `{model}`{did_you_mean(model, models)} ({', '.join(models)})")
