"""The repeated layers of a model."""

from __future__ import annotations

from typing import Any

from torch import nn


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
