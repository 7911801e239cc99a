"""A model spread over ranks by FSDP2, and put together again where it is wanted whole.

Each rank keeps its part of every fp32 master; a pass gathers the weights of one block at a time in the dtype
that the model computes in, and sums the gradients over ranks in fp32 (arXiv 2304.11277).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from whetstone.engine.weights import Deferred
from whetstone.trainer.lora import is_adapted, merges
from whetstone.trainer.ranks import Ranks


def shard(model: PreTrainedModel, mesh: DeviceMesh, *, trained: bool) -> None:
    """Leave each rank its part of ``model``, in place: a block at a time, then what is outside the blocks.

    The weights are those of rank 0: what others loaded or warmed up may differ in its last bits.
    A ``trained`` model's parts are fp32 masters, made block by block so that no rank ever holds all of them;
    those of a frozen one stay as they are. Compute stays in the model's dtype.
    """
    dtype = model.dtype
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), 0)
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for module in (*blocks(model), model):
        if trained:
            _make_masters(module)
        part = fully_shard(module, mesh=mesh, mp_policy=policy)
        # A token's loss brings its share of the global denominator: gradients are summed, not averaged.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    # An expert that no token of a rank met, or a head that had no token to predict, has no gradient there.
    cast(FSDPModule, model).set_reduce_scatter_unused_params(True)


def gathering(model: PreTrainedModel, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """``call``, a forward pass through parts of a sharded ``model``, with weights gathered around it.

    The weights outside the blocks stay gathered until the backward pass, or :func:`release`. Until then they
    may get many gradients: the head gets one per chunk of logits, and tied embeddings get that of the input
    as well. FSDP2 sees their sum only, so the sum is made in fp32.
    """

    def summing(*args: Any) -> Any:
        for parameter in _gathered_parameters(model):
            cast(Any, parameter).grad_dtype = torch.float32
        return call(*args)

    setattr(model, name, summing)
    register_fsdp_forward_method(model, name)
    return cast(Callable[..., Any], getattr(model, name))


def give_gradients(model: PreTrainedModel) -> None:
    """Give the gathered weights that have no gradient one of zero, in fp32, before the backward pass.

    For a head that had no token to predict. FSDP2 would make its gradient in the dtype of the weights, and
    refuses gradients of several dtypes.
    """
    for parameter in _gathered_parameters(model):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, dtype=torch.float32)


def _gathered_parameters(model: PreTrainedModel) -> Iterator[nn.Parameter]:
    """The trained parameters that are whole at the moment: none of a model that is not sharded."""
    if isinstance(model, FSDPModule):
        yield from (p for p in model.parameters() if p.requires_grad and not isinstance(p, DTensor))


def release(model: PreTrainedModel) -> None:
    """After a pass without a backward one: free what is gathered."""
    if isinstance(model, FSDPModule):
        model.reshard()


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def like(part: Tensor, whole: Tensor, ranks: Ranks | None = None) -> Tensor:
    """A rank's ``part`` as what it is a part of: sharded as ``whole`` is, on the device where the part is."""
    if not isinstance(whole, DTensor):
        return part
    mesh = whole.device_mesh
    if ranks is not None and ranks.host_mesh is not None and part.device.type == "cpu":
        mesh = ranks.host_mesh
    return DTensor.from_local(
        part, mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def named_weights(model: PreTrainedModel, *, parts: bool = False) -> Iterator[tuple[str, object]]:
    """Name and value of every parameter, tied ones once: live tensors, or what gathers one when it is read.

    parts: what is spread over ranks comes as it is, each rank's own rows; only adapters are gathered.

    Names are those of a plain model: adapters are merged into the weights that they adapt.
    Persistent buffers come last. Gathering is done by all ranks together: all must read all, in this order.
    """
    adapted = merges(model)
    for name, parameter in model.named_parameters():
        if name in adapted:
            plain, merge = adapted[name]
            yield plain, Deferred(parameter.shape, partial(_merged, merge))
        elif ".lora_A." not in name and ".lora_B." not in name:
            value = parameter.detach()
            yield name.replace(".base_layer.", "."), value if parts else _whole(value)
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    yield from ((name, value) for name, value in model.state_dict().items() if name not in parameters)


def whole_model(
    model: PreTrainedModel, dtype: torch.dtype, *, keep: bool, copied: bool = False
) -> PreTrainedModel | None:
    """The model as transformers can save it: itself, or a copy on the CPU in ``dtype`` if sharded or adapted.

    ``copied``: a copy in any case, which later steps do not change.

    All ranks call this together; those that do not ``keep`` the copy get None.
    """
    if not isinstance(model, FSDPModule) and not is_adapted(model) and not copied:
        return model if keep else None
    weights: dict[str, Tensor] = {}
    for name, weight in named_weights(model):
        tensor = weight.make(dtype) if isinstance(weight, Deferred) else cast(Tensor, weight)
        if keep:
            weights[name] = tensor.to("cpu", copy=True)
    if not keep:
        return None
    with no_init_weights(), torch.device("meta"):
        plain: Any = AutoModelForCausalLM.from_config(copy.deepcopy(model.config), dtype=dtype)
    plain.load_state_dict(weights, strict=False, assign=True)
    plain.tie_weights()
    plain.generation_config = copy.deepcopy(model.generation_config)
    return plain


def _whole(tensor: Tensor) -> object:
    return Deferred(tensor.shape, partial(_gathered, tensor)) if isinstance(tensor, DTensor) else tensor


def _gathered(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    converted = tensor.detach().to(dtype)
    return converted.full_tensor() if isinstance(converted, DTensor) else converted


def _merged(merge: Callable[[Callable[[Tensor], Tensor]], Tensor], dtype: torch.dtype) -> Tensor:
    return merge(lambda parameter: _gathered(parameter, torch.float32)).to(dtype)


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The repeated layers: what is gathered and freed as one."""
    lists = [module for module in model.base_model.children() if isinstance(module, nn.ModuleList)]
    return list(max(lists, key=len, default=()))


def _make_masters(module: nn.Module) -> None:
    for parameter in module.parameters():
        if parameter.requires_grad and not isinstance(parameter, DTensor):
            parameter.data = parameter.data.float()
