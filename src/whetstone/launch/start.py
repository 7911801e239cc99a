"""The model a run starts from: loaded from where the recipe says, or made and warmed up here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whetstone.data.micro import micro_examples
from whetstone.data.micro_cases import micro_case_examples
from whetstone.engine.device import pick_device
from whetstone.engine.loading import LoadedModel, load_model, save_model
from whetstone.engine.scratch import build_scratch, build_tokenizer
from whetstone.engine.settings import SERVERS, ScratchModel
from whetstone.launch.display import Display
from whetstone.launch.recipe import Recipe
from whetstone.trainer.warmup import warm_up

_TOKENIZER_EXAMPLES = 4000


def start_model(recipe: Recipe, display: Display) -> LoadedModel:
    """Load ``model.path``, or build ``model.scratch`` and run its ``warmup``.

    Raises UserError when there is nothing to load under that name.
    """
    settings = recipe.model
    if settings.scratch is None:
        assert settings.path is not None  # a recipe has exactly one of the two
        display.say(f"loading {settings.path}")
        return load_model(
            settings.path, revision=settings.revision, dtype=settings.dtype, device=settings.device
        )
    model, tokenizer = _scratch(settings.scratch, recipe)
    model = model.to(device=pick_device(settings.device))
    if recipe.warmup is not None:
        display.begin("supervised warm-up", recipe.warmup.steps)

        def on_step(step: int, loss: float) -> None:
            display.advance(step + 1, f"loss {loss:.3f}")

        losses = warm_up(
            model,
            tokenizer,
            _examples(recipe, recipe.warmup.steps * recipe.warmup.batch_size),
            recipe.warmup,
            on_step,
        )
        display.end(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return LoadedModel(model=model, tokenizer=tokenizer, source="scratch")


def model_to_fill(recipe: Recipe) -> LoadedModel:
    """The model of a run as a replica has it, whose weights come from the trainer: without a warm-up.

    A server has weights of its own, so what it gets them from is in the host's memory. Raises UserError as
    ``start_model`` does.
    """
    settings = recipe.model
    device = "cpu" if recipe.engine.kind in SERVERS else settings.device
    if settings.scratch is None:
        assert settings.path is not None
        return load_model(settings.path, revision=settings.revision, dtype=settings.dtype, device=device)
    model, tokenizer = _scratch(settings.scratch, recipe)
    return LoadedModel(model=model.to(device=pick_device(device)), tokenizer=tokenizer, source="scratch")


def keep_start(run: Path, start: LoadedModel) -> None:
    """Keep the starting weights in ``run/start``. What an attempt left that came to no checkpoint goes."""
    for left in (run / "start", *run.glob(".start.*.tmp")):
        shutil.rmtree(left, ignore_errors=True)
    save_model(start.model, start.tokenizer, run / "start")


def scratch_tokenizer(settings: ScratchModel, recipe: Recipe) -> Any:
    """The tokenizer of a model from scratch, without the model."""
    return build_tokenizer(_texts(recipe), settings.vocab_size)


def _scratch(settings: ScratchModel, recipe: Recipe) -> tuple[Any, Any]:
    return build_scratch(settings, _texts(recipe), recipe.seed)


def _texts(recipe: Recipe) -> Iterator[str]:
    return (prompt + reply for prompt, reply in _examples(recipe, _TOKENIZER_EXAMPLES))


def _examples(recipe: Recipe, count: int) -> list[tuple[str, str]]:
    warmup = recipe.warmup
    made = micro_case_examples if warmup is not None and warmup.writes == "cases" else micro_examples
    return made(count, recipe.seed, 0.0 if warmup is None else warmup.wrong_share)
