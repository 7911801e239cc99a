"""AdamW on fp32 master weights, for a model that computes in bf16 or fp32.

A bf16 weight loses updates smaller than its last bit, and updates in RL are that small. The optimizer
therefore has fp32 master weights, sums gradients in fp32, and rounds the master weights into the model. The
parameters of an fp32 model are the master weights themselves, and so are the shards of a sharded model. Each
rank updates its own shard; only the gradient norm covers all ranks. The optimizer's data can be in host
memory, where the update is then computed; the device only has the compute weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from whetstone.core.errors import UserError
from whetstone.engine.host_copies import HostCopies, pinned
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.sharding import as_shard_of, local_part


def learning_rate(settings: TrainerSection, step: int) -> float:
    """Return the rate of a step, counted from 0: linear warm-up, then constant or decaying.

    Warm-up: step 0 trains with lr / warmup_steps, step warmup_steps - 1 with lr. The decay, ``linear`` or
    half a ``cosine``, reaches ``lr_end`` times lr in the last step of the horizon, and stays there.
    """
    rising = settings.warmup_steps
    if step < rising:
        return settings.lr * (step + 1) / rising
    if settings.lr_decay == "constant":
        return settings.lr
    horizon = settings.lr_decay_steps or settings.steps
    done = min(1.0, (step - rising + 1) / max(1, horizon - rising))
    left = 1.0 - done if settings.lr_decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return settings.lr * (settings.lr_end + (1.0 - settings.lr_end) * left)


_STATE = ("exp_avg", "exp_avg_sq")


class MasterAdamW:
    """AdamW (arXiv 1711.05101) for ``parameters`` (name, parameter).

    Between construction and :meth:`close` every backward pass adds to the fp32 gradients, which are allocated
    once. Weight decay applies to matrices, not to vectors (norms, biases). ``skipped`` counts updates omitted
    because a gradient was not finite. ``offload``: master weights, summed gradients and moments are on the
    CPU, also for fp32 parameters.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        grad_clip: float = 1.0,
        offload: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        self.skipped = 0
        self._ranks = ranks or Ranks()
        self._grad_clip = grad_clip
        self._offload = offload
        self._parameters = {name: p for name, p in parameters if p.requires_grad}
        self._masters = {name: _master(name, p, offload) for name, p in self._parameters.items()}
        self._gradients = [torch.zeros_like(m) for m in self._masters.values()]
        for master, gradient in zip(self._masters.values(), self._gradients, strict=True):
            # The optimizer reads this tensor, to which every backward pass adds.
            master.grad = gradient
        self._copies = HostCopies()
        self._hooks = [
            p.register_post_accumulate_grad_hook(_Accumulate(gradient, self._copies))
            for p, gradient in zip(self._parameters.values(), self._gradients, strict=True)
        ]
        masters = list(self._masters.values())
        self._adam = torch.optim.AdamW(
            [
                {"params": [m for m in masters if m.dim() > 1], "weight_decay": weight_decay},
                {"params": [m for m in masters if m.dim() <= 1], "weight_decay": 0.0},
            ],
            lr=0.0,
            betas=betas,
            eps=eps,
            fused=True,
        )
        # torch creates the moments at the first update. Create them now, so that a checkpoint can be loaded.
        for master in masters:
            moments = {part: torch.zeros_like(master) for part in _STATE}
            self._adam.state[master] = {"step": torch.zeros((), device=master.device), **moments}

    def update(self, lr: float) -> float:
        """Apply the summed gradients, clear them, and return their global norm before clipping.

        A norm that is not finite changes nothing, is counted, and is returned unchanged.
        """
        self._copies.finish()
        total = torch.nn.utils.get_total_norm(self._gradients)
        if self._ranks.size > 1:
            # In float64, since the square may be outside the range of float32.
            total = self._ranks.sum(total.double().square(), "the gradient norm").sqrt()
        norm = float(total)
        if not math.isfinite(norm):
            self.skipped += 1
        else:
            # The small addend avoids a division by zero, as in torch's clip_grad_norm_.
            scale = self._grad_clip / (norm + 1e-6)
            if scale < 1.0:
                for gradient in self._gradients:
                    gradient.mul_(scale)
            for group in self._adam.param_groups:
                group["lr"] = lr
            self._adam.step()
            self._write_model_weights()
        for gradient in self._gradients:
            gradient.zero_()
        return norm

    def state_dict(self) -> dict[str, Tensor]:
        """Return master weights, both moments and update counts by name. They are live tensors: save or copy
        them at once.

        For a sharded model the tensors are sharded in the same way.
        """
        result: dict[str, Tensor] = {}
        for name, master in self._masters.items():
            whole, state = self._parameters[name], self._adam.state[master]
            result[f"master/{name}"] = as_shard_of(master, whole, self._ranks)
            for part in _STATE:
                result[f"{part}/{name}"] = as_shard_of(state[part], whole, self._ranks)
            result[f"updates/{name}"] = state["step"]
        result["skipped"] = torch.tensor(self.skipped)
        return result

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load master weights, moments and counts, and round the master weights into the model.

        Raises UserError if names or shapes differ from this model's.
        """
        for name, parameter in self._parameters.items():
            saved = state.get(f"master/{name}")
            if saved is None or saved.shape != parameter.shape:
                shape = "missing" if saved is None else f"of shape {list(saved.shape)}"
                raise UserError(
                    f"the saved optimizer state does not fit the model: `{name}` is {shape}, "
                    f"not {list(parameter.shape)}; resume with the model the run was started with"
                )
        for name, master in self._masters.items():
            moments = self._adam.state[master]
            master.copy_(local_part(state[f"master/{name}"]))
            for part in _STATE:
                moments[part].copy_(local_part(state[f"{part}/{name}"]))
            moments["step"].copy_(state[f"updates/{name}"])
        self.skipped = int(state["skipped"])
        self._write_model_weights()

    def close(self) -> None:
        """Stop collecting gradients, so that another optimizer can train the same model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    @torch.no_grad()
    def _write_model_weights(self) -> None:
        for name, parameter in self._parameters.items():
            part, master = local_part(parameter), self._masters[name]
            if self._offload:
                part.copy_(pinned(master, part.device, part.dtype), non_blocking=True)
            # Otherwise the parameter is the master itself.
            elif parameter.dtype != torch.float32:
                part.copy_(master)


class _Accumulate:
    """Adds a parameter's new gradient to the fp32 sum, and frees it during the backward pass."""

    def __init__(self, total: Tensor, copies: HostCopies) -> None:
        self._total = total
        self._copies = copies

    def __call__(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            gradient = local_part(parameter.grad)
            if gradient.device == self._total.device:
                self._total.add_(gradient)
            else:
                self._copies.start(gradient, self._total.add_)
            # At no time are the gradients of all parameters in memory in addition to their sums.
            parameter.grad = None


def _master(name: str, parameter: nn.Parameter, offload: bool) -> Tensor:
    """Return this rank's part in fp32: the parameter itself if it is fp32 and not offloaded."""
    if parameter.dtype in (torch.float32, torch.bfloat16):
        part = local_part(parameter.detach())
        return part.to("cpu", torch.float32, copy=True) if offload else part.float()
    raise UserError(f"parameter `{name}` is {parameter.dtype}; train in bfloat16 or float32 (`model.dtype`)")
