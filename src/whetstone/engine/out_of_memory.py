"""Explains out-of-memory errors: the phase, the amount of data, and the settings that help."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

from whetstone.core.errors import UserError

# Parts of out-of-memory messages that torch raises without a specific class.
_MESSAGES = ("can't allocate memory", "out of memory", "bad_alloc", "CUBLAS_STATUS_ALLOC_FAILED")

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
    """The memory of a device was not sufficient."""


@contextmanager
def explain_out_of_memory(
    phase: str, device: torch.device, amount: Callable[[], str], keys: str
) -> Generator[None]:
    """Raise :class:`OutOfMemory` in place of torch's error if ``device`` is full inside the block.

    phase: what the block does. amount: describes its data, mainly the number of tokens. keys: settings that
    help.
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
            "`whetstone train RECIPE --dry-run` shows what needs how much. The same command resumes from the "
            "last checkpoint, where there is one"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory is used up. On a CPU only its message tells."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _MESSAGES)


def describe_weights(model: Any) -> str:
    """Describe how many weights a model has."""
    return f"{sum(parameter.numel() for parameter in model.parameters()):.3g} weights"
