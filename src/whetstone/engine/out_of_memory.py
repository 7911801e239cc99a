"""A device that is full, told as what was done there, with how many tokens, and which keys help."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

from whetstone.errors import UserError

_WORDS = ("can't allocate memory", "out of memory", "bad_alloc", "CUBLAS_STATUS_ALLOC_FAILED")
"""What the messages hold of errors that torch raises for want of memory without a class of their own."""

TRAINING_KEYS = (
    "`trainer.activation_checkpointing: true`, a smaller `trainer.micro_batch_tokens` (of a single reply a "
    "smaller `sampling.max_tokens`), more ranks (torchrun), `trainer.offload: true`, "
    "`trainer.lora`"
)
SAMPLING_KEYS = (
    "a smaller `engine.options.max_batch` or `engine.options.cache_mb`, a smaller `sampling.max_tokens`"
)
WEIGHTS_KEYS = (
    "more ranks (torchrun), `trainer.offload: true`, `trainer.lora`, a smaller model, `model.dtype: bfloat16`"
)


class OutOfMemory(UserError):
    """The memory of a device did not suffice."""


@contextmanager
def named_when_out(phase: str, device: torch.device, amount: Callable[[], str], keys: str) -> Generator[None]:
    """Raise :class:`OutOfMemory` in place of what torch says when ``device`` is full inside.

    phase: what is done. amount: says with how much, tokens above all. keys: what helps.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        said = str(error).strip().splitlines()
        wanted = f" ({said[0]})" if said else ""
        raise OutOfMemory(
            f"out of memory on `{device}` in {phase}: {amount()}{wanted}. What helps, in this order: {keys}. "
            "The same command resumes from the last checkpoint, where there is one"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is used up: on an accelerator, or, of a CPU, in words only."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


def weights_in_words(model: Any) -> str:
    """How many weights a model has."""
    return f"{sum(parameter.numel() for parameter in model.parameters()):.3g} weights"
