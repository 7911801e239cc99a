"""Ways to reduce the trainer's device memory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from whetstone.core.errors import UserError


def check_offload(device: torch.device) -> None:
    """Raise UserError if there is no device from which the optimizer could be offloaded."""
    if device.type == "cpu":
        raise UserError(
            "trainer.offload: the model is on the CPU, whose memory is the only one; set it to false"
        )


def move_to_host(model: nn.Module) -> None:
    """Move a frozen model to the host, so that :func:`moved_to` can copy it back without waiting."""
    cuda = any(parameter.is_cuda for parameter in model.parameters())
    model.to("cpu")
    for parameter in model.parameters() if cuda else ():
        parameter.data = parameter.data.pin_memory()


@contextmanager
def moved_to(model: PreTrainedModel, device: torch.device) -> Generator[None]:
    """A context in which a frozen model is on ``device``; afterwards it is where it was before."""
    home = model.device
    if home == device:
        yield
        return
    weights = model.state_dict()
    mover = cast(Any, model)
    mover.to(device, non_blocking=True)
    try:
        yield
    finally:
        # They have not changed, so those at home are still right and nothing is copied back.
        model.load_state_dict(weights, strict=False, assign=True)
        model.tie_weights()
        mover.to(home)


def checkpoint_activations(model: PreTrainedModel) -> None:
    """Keep only the inputs of each layer for the backward pass, and compute the rest again there.

    Raises UserError for a model whose layers do not support it, or use dropout.
    """
    kind = model.config.model_type
    if not model.supports_gradient_checkpointing:
        raise UserError(
            f"trainer.activation_checkpointing: transformers has none for model type `{kind}`; "
            "set it to false"
        )
    drops = [k for k, v in model.config.to_dict().items() if "drop" in k and isinstance(v, float) and v > 0]
    if drops:
        raise UserError(
            f"trainer.activation_checkpointing: model type `{kind}` is configured to drop activations "
            f"({', '.join(drops)}), which this setting would activate; set it to false, or these to 0 "
            "in config.json"
        )
    # Newer transformers use another name.
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
    # transformers only does it for layers in training mode. Their submodules stay in evaluation mode.
    for block in blocks(model):
        block.training = True


def blocks(model: Any) -> list[nn.Module]:
    """Return the repeated layers of a transformers model."""
    lists = [module for module in model.base_model.children() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=len, default=()))


def are_uniform(model: Any) -> bool:
    """Return whether all layers have the same parameters and the same kind of attention."""
    shapes = {
        tuple((name, parameter.shape) for name, parameter in block.named_parameters())
        for block in blocks(model)
    }
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    return len(shapes) == 1 and len(kinds) <= 1
