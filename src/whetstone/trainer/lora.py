"""Low-rank adapters (LoRA, arXiv 2106.09685): added to a model by peft, and merged into its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.optional_packages import install_command
from whetstone.trainer.settings import LoraSection

_ADAPTER = "default"


def add_adapters(model: PreTrainedModel, settings: LoraSection, seed: int) -> None:
    """Freeze ``model`` and add adapters to the layers in ``settings``, in place.

    They change nothing before the first update. torch's random state is not changed. Raises UserError for a
    target that no linear layer of the model has.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UserError(f"trainer.lora: {error}; {install_command('lora')}") from error

    names = {name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    names -= {name.rpartition(".")[2] for name, m in model.named_modules() if m is _head(model)}
    for target in settings.targets:
        if target not in names:
            raise UserError(
                f"trainer.lora.targets: model type `{model.config.model_type}` has no linear layer "
                f"`{target}`{did_you_mean(target, names)}; it has {', '.join(sorted(names))}"
            )
    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, target_modules=list(settings.targets), lora_dropout=0.0
    )
    # The random numbers of the rest of the run are the same with and without adapters.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, adapter_name=_ADAPTER)


def has_adapters(model: nn.Module) -> bool:
    """Return whether a model has adapters."""
    return any(hasattr(module, "lora_A") for module in model.modules())


def merged_weights(
    model: nn.Module,
) -> Mapping[str, tuple[str, Callable[[Callable[[Tensor], Tensor]], Tensor]]]:
    """Return, by the name of each adapted weight, its name in a plain model and a function that computes it.

    The function's argument returns a parameter whole, in fp32. It computes W + (alpha / rank) B A.
    """
    found: dict[str, tuple[str, Callable[[Callable[[Tensor], Tensor]], Tensor]]] = {}
    for name, module in model.named_modules():
        if hasattr(module, "lora_A"):
            found[f"{name}.base_layer.weight"] = (f"{name}.weight", _merge(module))
    return found


def _merge(module: nn.Module) -> Callable[[Callable[[Tensor], Tensor]], Tensor]:
    base = cast(nn.Linear, module.get_submodule("base_layer"))
    down = cast(nn.Linear, module.get_submodule(f"lora_A.{_ADAPTER}"))
    up = cast(nn.Linear, module.get_submodule(f"lora_B.{_ADAPTER}"))
    scaling = float(cast("dict[str, float]", module.scaling)[_ADAPTER])

    def merged(whole: Callable[[Tensor], Tensor]) -> Tensor:
        return whole(base.weight) + scaling * (whole(up.weight) @ whole(down.weight))

    return merged


def _head(model: PreTrainedModel) -> nn.Module | None:
    return model.get_output_embeddings()
