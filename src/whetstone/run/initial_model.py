"""The initial model of a run: loaded from the recipe's path, or created and warmed up."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from whetstone.data.micro import micro_case_examples, micro_examples
from whetstone.engine.device import pick_device
from whetstone.engine.loading import LoadedModel, load_model, save_model
from whetstone.engine.scratch import build_scratch, build_tokenizer
from whetstone.engine.settings import SERVERS, ModelSection, ScratchModel
from whetstone.environments.demonstrations import Turns, demonstrations, encode_turns
from whetstone.environments.formats.family import use_chat_settings
from whetstone.run.display import Display
from whetstone.run.problem_sets import problem_sets
from whetstone.run.recipe import Recipe
from whetstone.trainer.warmup import warm_up

_TOKENIZER_EPISODES = 4000
_DEFAULT_WRONG_SHARE = 0.7


def initial_model(recipe: Recipe, display: Display, device: str) -> LoadedModel:
    """Load ``model.path`` on ``device``, or build ``model.scratch`` there and run its ``warmup``.

    Raises UserError if there is no such model.
    """
    settings = recipe.model
    if settings.scratch is None:
        # A recipe has exactly one of the two.
        assert settings.path is not None
        display.log(f"loading {settings.path}")
        loaded = load_model(settings.path, revision=settings.revision, dtype=settings.dtype, device=device)
        return with_chat_settings(loaded, settings)
    model, tokenizer = _scratch(settings.scratch, recipe)
    model = model.to(device=pick_device(device))
    if recipe.warmup is not None:
        display.begin("supervised warm-up", recipe.warmup.steps)

        def on_step(step: int, loss: float) -> None:
            display.advance(step + 1, f"loss {loss:.3f}")

        count = recipe.warmup.steps * recipe.warmup.batch_size
        examples = (
            each for turns in _warmup_episodes(recipe, count) for each in encode_turns(turns, tokenizer)
        )
        losses = warm_up(model, list(islice(examples, count)), recipe.warmup, on_step)
        display.end(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return with_chat_settings(LoadedModel(model=model, tokenizer=tokenizer, source="scratch"), settings)


def replica_model(recipe: Recipe) -> LoadedModel:
    """Return the model of a replica, without warm-up, because its weights come from the trainer.

    For a server engine the model stays in host memory, because the server has its own copy. Raises UserError
    as ``initial_model`` does.
    """
    settings = recipe.model
    device = "cpu" if recipe.engine.kind in SERVERS else settings.device
    if settings.scratch is None:
        assert settings.path is not None
        loaded = load_model(settings.path, revision=settings.revision, dtype=settings.dtype, device=device)
        return with_chat_settings(loaded, settings)
    model, tokenizer = _scratch(settings.scratch, recipe)
    model = model.to(device=pick_device(device))
    return with_chat_settings(LoadedModel(model=model, tokenizer=tokenizer, source="scratch"), settings)


def with_chat_settings(loaded: LoadedModel, settings: ModelSection) -> LoadedModel:
    """Return a model whose tokenizer has the format and the template arguments of a recipe.

    Raises UserError for an unknown format, and for arguments that the chat template does not have.
    """
    use_chat_settings(loaded.tokenizer, settings.format, settings.template_arguments)
    return loaded


def start_folder(run: Path) -> Path:
    """Return the folder of the initial weights of a run that needs them later."""
    return run / "start"


def save_initial_weights(run: Path, start: LoadedModel) -> None:
    """Save the initial weights of a run, replacing those of a start that made no checkpoint."""
    # Temporary folders are left by a process that was killed while it saved.
    for left in (start_folder(run), *run.glob(".start.*.tmp")):
        shutil.rmtree(left, ignore_errors=True)
    save_model(start.model, start.tokenizer, start_folder(run))


def scratch_tokenizer(settings: ScratchModel, recipe: Recipe) -> Any:
    """Return the tokenizer of a model from scratch, without the model."""
    tokenizer = build_tokenizer(_tokenizer_texts(recipe), settings.vocab_size)
    use_chat_settings(tokenizer, recipe.model.format, recipe.model.template_arguments)
    return tokenizer


def _scratch(settings: ScratchModel, recipe: Recipe) -> tuple[Any, Any]:
    return build_scratch(settings, _tokenizer_texts(recipe), recipe.seed)


def _tokenizer_texts(recipe: Recipe) -> Iterator[str]:
    episodes = islice(_warmup_episodes(recipe, _TOKENIZER_EPISODES), _TOKENIZER_EPISODES)
    return ("".join(given + reply for given, reply in turns) for turns in episodes)


def _warmup_episodes(recipe: Recipe, count: int) -> Iterable[Turns]:
    """Return the episodes that a warm-up of ``count`` replies imitates; there may be more."""
    warmup = recipe.warmup
    if warmup is None:
        return ([example] for example in micro_examples(count, recipe.seed, 0.0))
    if warmup.writes == "demonstrations":
        problems = problem_sets(recipe, None, lambda _: None).train
        # The tokenizer of the model is made from these texts. Like this one, it has no chat template.
        no_template: Any = build_tokenizer((), 0)
        return demonstrations(recipe.environment.build(), problems, no_template, recipe.seed)
    made = micro_case_examples if warmup.writes == "cases" else micro_examples
    wrong_share = _DEFAULT_WRONG_SHARE if warmup.wrong_share is None else warmup.wrong_share
    return ([example] for example in made(count, recipe.seed, wrong_share))
