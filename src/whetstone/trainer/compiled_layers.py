"""Compiles the layers of a model with ``torch.compile``."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whetstone.core.errors import UserError
from whetstone.engine.model_layers import blocks


def check_compiler(device: torch.device) -> None:
    """Compile a small function for ``device``. Raises UserError if torch cannot."""
    try:
        _compiled_sample(torch.ones(8, device=device))
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        needed = "a C++ compiler and Python's headers" if device.type == "cpu" else "triton and a C compiler"
        raise UserError(
            f"trainer.compile: torch.compile does not work on `{device}` ({reason}); install {needed}, or "
            "set it to false"
        ) from error


def compile_layers(model: PreTrainedModel) -> None:
    """Compile each layer in place, for rows of any length. Packed attention runs between the compiled parts.

    To be called before the model is sharded. Raises UserError if torch cannot compile for its device.
    """
    check_compiler(model.device)
    for block in blocks(model):
        block.compile(dynamic=True)


@torch.compile
def _compiled_sample(values: Tensor) -> Tensor:
    return values.sin() + values.cos()
