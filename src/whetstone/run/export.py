"""Exports a checkpoint as a plain Hugging Face folder, and verifies that it equals the trained model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from whetstone.core.errors import UserError
from whetstone.core.outputs import new_folder
from whetstone.engine.loading import load_model
from whetstone.report.rollouts import read_rollouts, rollout_steps
from whetstone.run.initial_model import start_folder
from whetstone.run.recipe import Recipe, load_recipe
from whetstone.trainer.checkpoint import Checkpoint, latest_checkpoint, load_checkpoint
from whetstone.trainer.forward import Forward
from whetstone.trainer.lora import add_adapters
from whetstone.trainer.optimizer import MasterAdamW
from whetstone.trainer.packing import PromptReplies

_TRAINING_FILES = ("trainer", "state.json", "manifest.json")
_REPLIES = 16
# In nats. Both passes use fp32, and packing only changes the order of sums.
_MAX_GAP = 1e-3
# In nats. Merging adapters rounds the weights, so only the mean over tokens is bounded.
_MAX_MEAN_GAP_MERGED = 0.05

_TEXT = "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n"


@dataclass(frozen=True)
class _LogprobAgreement:
    """The largest and the mean difference to the trainer's log-probs, over ``tokens`` tokens."""

    tokens: int
    largest: float
    mean: float


def resolve_checkpoint(where: Path) -> Path:
    """Return the checkpoint that RUN, RUN/step-N or RUN/checkpoints/step-N names; of a run, the newest valid
    one."""
    if (where / "manifest.json").is_file():
        return where
    inside = where.parent / "checkpoints" / where.name
    if (inside / "manifest.json").is_file():
        return inside
    newest = latest_checkpoint(where) if (where / "checkpoints").is_dir() else None
    if newest is None:
        steps = sorted(p.name for p in (where.parent / "checkpoints").glob("step-*"))
        there = f"; there are {', '.join(steps)}" if steps else ""
        raise UserError(f"{where}: no checkpoint of a run{there}; give RUN/step-N, or RUN for the newest")
    return newest


def export(where: Path, out: Path, *, verify: bool) -> tuple[Path, _LogprobAgreement | None]:
    """Write the model of a checkpoint, with tokenizer and chat template, to the new folder ``out``.

    Returns the checkpoint. The folder is written completely or not at all, also if verification fails. Raises
    UserError for a failed verification and for an invalid checkpoint.
    """
    source = resolve_checkpoint(where)
    checkpoint = load_checkpoint(source)
    with new_folder(out) as folder:
        for file in source.iterdir():
            if file.name not in _TRAINING_FILES:
                if file.is_dir():
                    shutil.copytree(file, folder / file.name)
                else:
                    shutil.copyfile(file, folder / file.name)
        verified = verify_export(checkpoint, folder) if verify else None
    return source, verified


def verify_export(checkpoint: Checkpoint, folder: Path) -> _LogprobAgreement:
    """Compare log-probs of the run's replies: a plain forward pass of the exported model, and the trainer's
    packed pass over its checkpoint. Both use fp32. Raises UserError if they differ."""
    run = checkpoint.path.parent.parent
    recipe = load_recipe(run / "recipe.yaml")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    groups = _sample_replies(run, tokenizer)
    trained = _trained_log_probs(recipe, run, checkpoint, groups)
    plain = _plain_log_probs(folder, groups, recipe.sampling.temperature or 1.0)
    gap = (trained - plain).abs()
    found = _LogprobAgreement(len(gap), float(gap.max()), float(gap.mean()))
    merged = recipe.trainer.lora is not None
    good = found.mean <= _MAX_MEAN_GAP_MERGED if merged else found.largest <= _MAX_GAP
    if not good:
        raise UserError(
            f"{checkpoint.path}: the exported model differs from the trained one: of {found.tokens} "
            "log-probs the "
            f"largest difference is {found.largest:.2g} nats, the mean {found.mean:.2g}; nothing was written"
        )
    return found


def _sample_replies(run: Path, tokenizer: Any) -> list[PromptReplies]:
    """Return token ids of a few recorded prompts and replies, or of a built-in text if none are recorded."""
    pairs: list[tuple[str, str]] = []
    for step in reversed(rollout_steps(run)):
        pairs += [(row.prompt, row.reply) for row in read_rollouts(run, step)]
        if len(pairs) >= _REPLIES:
            break
    pairs = pairs[:_REPLIES] or [(_TEXT[:14], _TEXT[14:])]
    encoded = [[tokenizer.encode(text, add_special_tokens=False) for text in pair] for pair in pairs]
    return [PromptReplies(prompt, [reply]) for prompt, reply in encoded if prompt and reply]


def _trained_log_probs(
    recipe: Recipe, run: Path, checkpoint: Checkpoint, groups: Sequence[PromptReplies]
) -> torch.Tensor:
    lora = recipe.trainer.lora
    # The weights of a checkpoint with adapters are merged, so the trained adapters are applied to the initial
    # ones.
    start = start_folder(run) if lora is not None else checkpoint.path
    model = load_model(str(start), dtype=recipe.model.dtype, device="cpu").model
    if lora is not None:
        add_adapters(model, lora, recipe.seed)
    optimizer = MasterAdamW(model.named_parameters())
    state = optimizer.state_dict()
    checkpoint.read_into(state)
    optimizer.load_state_dict(state)
    optimizer.close()
    forward = Forward(model.float(), temperature=recipe.sampling.temperature)
    tokens = sum(len(reply) for group in groups for reply in group.replies)
    return forward.log_probs(forward.pack(groups, recipe.trainer.micro_batch_tokens), tokens)


def _plain_log_probs(folder: Path, groups: Sequence[PromptReplies], temperature: float) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found: list[torch.Tensor] = []
    with torch.no_grad():
        for group in groups:
            reply = torch.tensor(group.replies[0])
            ids = torch.cat([torch.tensor(group.prompt_ids), reply])
            logits = model(input_ids=ids[None]).logits[0, len(group.prompt_ids) - 1 : -1] / temperature
            found.append(logits.log_softmax(-1).gather(-1, reply[:, None]).squeeze(-1))
    return torch.cat(found)


def upload(folder: Path, repository: str) -> str:
    """Upload an exported folder to a private model repository of the hub, created if necessary; return its
    URL.

    Raises UserError if the hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        made = api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder)
    # The errors of the hub and of its HTTP library have no common base class.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"--upload {repository}: {reason}; {folder} is complete: log in with `hf auth login` or "
            "HF_TOKEN, "
            f"and upload it with `hf upload {repository} {folder}`"
        ) from error
    return str(made)
