"""Shards a model over ranks with FSDP2, and gathers it where it is needed whole.

Each rank keeps its part of every fp32 master weight. A pass gathers the weights of one block at a time in the
compute dtype, and sums the gradients over ranks in fp32 (arXiv 2304.11277).
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

from whetstone.core.errors import UserError
from whetstone.engine.host_copies import HostCopies
from whetstone.engine.weights import DeferredWeight
from whetstone.trainer.lora import has_adapters, merged_weights
from whetstone.trainer.memory import blocks
from whetstone.trainer.ranks import Ranks


def shard_model(model: PreTrainedModel, mesh: DeviceMesh, *, trained: bool) -> None:
    """Leave each rank its part of ``model``, in place: one block at a time, then the rest.

    The model may be in host memory: its parts are on the device of the mesh, which never holds more than a
    block whole. The weights are those of rank 0; those that other ranks loaded or warmed up may differ in the
    last bits. The parts of a ``trained`` model are fp32 master weights, created block by block so that no
    rank ever has all of them. Those of a frozen model keep their dtype. Compute stays in the model's dtype.
    Raises UserError if torch is too old.
    """
    if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        raise UserError(f"several ranks need a newer torch than {torch.__version__}; install 2.13 or later")
    dtype = model.dtype
    device = mesh_device(mesh)
    moved: set[int] = set()
    # In bf16, the sum of gradients over ranks would lose small values.
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for module in (*blocks(model), model):
        for tensor in (*module.parameters(), *module.buffers()):
            if not isinstance(tensor, DTensor) and id(tensor) not in moved:
                moved.add(id(tensor))
                tensor.data = tensor.data.to(device)
                dist.broadcast(tensor.data, 0)
        if trained:
            for parameter in module.parameters():
                if parameter.requires_grad and not isinstance(parameter, DTensor):
                    parameter.data = parameter.data.float()
        part = fully_shard(module, mesh=mesh, mp_policy=policy)
        # Each token's loss is already divided by the global denominator, so gradients are summed, not
        # averaged.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    # An expert without tokens on a rank, or a head without tokens to predict, has no gradient there.
    cast(FSDPModule, model).set_reduce_scatter_unused_params(True)


def mesh_device(mesh: DeviceMesh) -> torch.device:
    """Return this rank's device of a mesh."""
    kind = mesh.device_type
    if kind == "cpu":
        return torch.device(kind)
    return torch.device(kind, torch.accelerator.current_device_index())


def with_gathered_weights(model: PreTrainedModel, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call``, a forward pass through parts of a sharded ``model``, with weights gathered around it.

    The weights outside the blocks stay gathered until the backward pass, or :func:`free_gathered`. Until then
    they may get several gradients: the head gets one per chunk of logits, and tied embeddings also get that
    of the input. FSDP2 only sees their sum, so the sum is computed in fp32.
    """

    def summing(*args: Any) -> Any:
        for parameter in _gathered_parameters(model):
            cast(Any, parameter).grad_dtype = torch.float32
        return call(*args)

    setattr(model, name, summing)
    register_fsdp_forward_method(model, name)
    return cast(Callable[..., Any], getattr(model, name))


def zero_missing_gradients(model: PreTrainedModel) -> None:
    """Give gathered weights without a gradient a zero gradient in fp32, before the backward pass.

    This is for a head without tokens to predict. FSDP2 would create its gradient in the dtype of the weights,
    and refuses gradients of several dtypes.
    """
    for parameter in _gathered_parameters(model):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, dtype=torch.float32)


def _gathered_parameters(model: PreTrainedModel) -> Iterator[nn.Parameter]:
    """Yield the trained parameters that are currently gathered; none for a model that is not sharded."""
    if isinstance(model, FSDPModule):
        yield from (p for p in model.parameters() if p.requires_grad and not isinstance(p, DTensor))


def free_gathered(model: PreTrainedModel) -> None:
    """Free gathered weights after a pass without a backward pass."""
    if isinstance(model, FSDPModule):
        model.reshard()


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def as_shard_of(part: Tensor, whole: Tensor, ranks: Ranks | None = None) -> Tensor:
    """Return a rank's ``part`` as a tensor that is sharded like ``whole``, on the device of the part."""
    if not isinstance(whole, DTensor):
        return part
    mesh = whole.device_mesh
    if ranks is not None and ranks.host_mesh is not None and part.device.type == "cpu":
        mesh = ranks.host_mesh
    return DTensor.from_local(
        part, mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def named_weights(model: PreTrainedModel, *, parts: bool = False) -> Iterator[tuple[str, object]]:
    """Yield name and value of every parameter, tied ones once: live tensors, or deferred ones that are
    gathered when read.

    parts: yield sharded weights as each rank's own rows; only adapters are gathered.

    Names are those of a plain model: adapters are merged into their weights. Persistent buffers come last.
    Gathering is collective: all ranks must read all weights, in this order.
    """
    adapted = merged_weights(model)
    for name, parameter in model.named_parameters():
        if name in adapted:
            plain, merge = adapted[name]
            yield plain, DeferredWeight(parameter.shape, partial(_merged, merge))
        elif ".lora_A." not in name and ".lora_B." not in name:
            value = parameter.detach()
            yield name.replace(".base_layer.", "."), value if parts else _whole(value)
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    yield from ((name, value) for name, value in model.state_dict().items() if name not in parameters)


def whole_model(
    model: PreTrainedModel, dtype: torch.dtype, *, keep: bool, copied: bool = False
) -> PreTrainedModel | None:
    """Return the model in a form that transformers can save: itself, or a copy on the CPU in ``dtype`` if
    sharded or adapted.

    ``copied``: always copy, so that later steps do not change it.

    All ranks call this together; ranks without ``keep`` get None.
    """
    if not isinstance(model, FSDPModule) and not has_adapters(model) and not copied:
        return model if keep else None
    weights: dict[str, Tensor] = {}
    copies = HostCopies()
    for name, weight in named_weights(model):
        tensor = weight.make(dtype) if isinstance(weight, DeferredWeight) else cast(Tensor, weight)
        if keep:
            weights[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
            copies.start(tensor, weights[name].copy_)
    copies.finish()
    if not keep:
        return None
    with no_init_weights(), torch.device("meta"):
        plain: Any = AutoModelForCausalLM.from_config(copy.deepcopy(model.config), dtype=dtype)
    plain.load_state_dict(weights, strict=False, assign=True)
    plain.tie_weights()
    plain.generation_config = copy.deepcopy(model.generation_config)
    return plain


def _whole(tensor: Tensor) -> object:
    return DeferredWeight(tensor.shape, partial(_gathered, tensor)) if isinstance(tensor, DTensor) else tensor


def _gathered(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    converted = tensor.detach().to(dtype)
    return converted.full_tensor() if isinstance(converted, DTensor) else converted


def _merged(merge: Callable[[Callable[[Tensor], Tensor]], Tensor], dtype: torch.dtype) -> Tensor:
    return merge(lambda parameter: _gathered(parameter, torch.float32)).to(dtype)
