"""A model without weights, made from its configuration on torch's meta device, to count its memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM
from transformers.initialization import no_init_weights

from whetstone.engine.architecture import check_architecture


def meta_model(config: Any, dtype: torch.dtype, layers: int | None = None) -> Any:
    """Return a transformers model of ``config`` whose tensors have shapes but no memory.

    layers: the number of layers, of a model whose layers are all equal. Raises UserError for an untested
    architecture.
    """
    check_architecture(config)
    config = copy.deepcopy(config)
    text = config.get_text_config()
    if layers is not None:
        kinds = getattr(text, "layer_types", None)
        text.num_hidden_layers = layers
        text.layer_types = kinds and kinds[:layers]
    # transformers would search ids, which have no values, for it.
    text.pad_token_id = None
    text.rope_parameters = _without_lengths(getattr(text, "rope_parameters", None))
    with torch.device("meta"), no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    # Without initial values transformers does not do it.
    model.tie_weights()
    return model.eval()


def _without_lengths(rope: Any) -> Any:
    """Return rope parameters that do not depend on the length of a row, which a meta tensor cannot tell.

    Frequencies change no size.
    """
    if not isinstance(rope, Mapping):
        return rope
    parameters = cast("Mapping[str, Any]", rope)
    if "rope_type" not in parameters:
        return {kind: _without_lengths(inner) for kind, inner in parameters.items()}
    kept = {key: parameters[key] for key in ("rope_theta", "partial_rotary_factor") if key in parameters}
    return {"rope_type": "default", **kept}
