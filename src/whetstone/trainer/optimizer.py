"""AdamW on fp32 master weights, for a model that computes in bf16 or fp32.

A bf16 weight swallows an update smaller than its last bit, and RL's updates are that small. So the
optimizer owns fp32 masters, gradients are summed in fp32, and the model's weights are the masters
rounded. An fp32 model's own parameters are the masters, and so are the parts of a sharded model: each rank
moves its own part, and only the norm of the gradients is of all. What the optimizer owns can lie in the
host's memory, where the update is then computed; the device keeps the weights to compute with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from whetstone.errors import UserError
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.schedule import SpikeGuard
from whetstone.trainer.sharding import like, local

_STATE = ("exp_avg", "exp_avg_sq")


class MasterAdamW:
    """AdamW (arXiv 1711.05101) over ``parameters`` (name, parameter).

    Between construction and :meth:`close` every backward pass adds to the fp32 gradients, which are
    allocated once. Matrices decay, vectors (norms, biases) do not. ``skipped`` counts the updates left
    out because a gradient was not finite, ``spikes`` those that were a spike (``spike_factor``).
    ``offload``: masters, summed gradients and moments are on the CPU, also those of fp32 parameters.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        grad_clip: float = 1.0,
        spike_factor: float = 0.0,
        offload: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        self.skipped = 0
        self.spikes = 0
        self._guard = SpikeGuard(spike_factor)
        self._ranks = ranks or Ranks()
        self._grad_clip = grad_clip
        self._offload = offload
        self._parameters = {name: p for name, p in parameters if p.requires_grad}
        self._masters = {name: _master(name, p, offload) for name, p in self._parameters.items()}
        self._gradients = [torch.zeros_like(m) for m in self._masters.values()]
        for master, gradient in zip(self._masters.values(), self._gradients, strict=True):
            master.grad = gradient
        self._hooks = [
            p.register_post_accumulate_grad_hook(_Accumulate(gradient))
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
        # torch makes these at the first update; here they are there for a checkpoint to be read into.
        for master in masters:
            moments = {part: torch.zeros_like(master) for part in _STATE}
            self._adam.state[master] = {"step": torch.zeros((), device=master.device), **moments}

    def update(self, lr: float) -> float:
        """Apply the summed gradients, clear them, and return their global norm before clipping.

        A norm that is not finite, or a spike, changes nothing, is counted, and is returned as it is.
        """
        norm = self._norm()
        if not bool(torch.isfinite(norm)):
            self.skipped += 1
        elif self._guard.is_spike(float(norm)):
            self.spikes += 1
        else:
            scale = self._grad_clip / (float(norm) + 1e-6)
            if scale < 1.0:
                for gradient in self._gradients:
                    gradient.mul_(scale)
            for group in self._adam.param_groups:
                group["lr"] = lr
            self._adam.step()
            self._round()
        for gradient in self._gradients:
            gradient.zero_()
        return float(norm)

    def state_dict(self) -> dict[str, Tensor]:
        """Masters, both moments and update counts by name. The live tensors: save or copy them at once.

        Of a sharded model, tensors that are sharded alike.
        """
        result: dict[str, Tensor] = {}
        for name, master in self._masters.items():
            whole, state = self._parameters[name], self._adam.state[master]
            result[f"master/{name}"] = like(master, whole, self._ranks)
            for part in _STATE:
                result[f"{part}/{name}"] = like(state[part], whole, self._ranks)
            result[f"updates/{name}"] = state["step"]
        result["skipped"] = torch.tensor(self.skipped)
        result["spikes"] = torch.tensor(self.spikes)
        result["norms"] = self._guard.state()
        return result

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take masters, moments and counts, and round the masters into the model.

        Raises UserError when names or shapes are not those of this model.
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
            master.copy_(local(state[f"master/{name}"]))
            for part in _STATE:
                moments[part].copy_(local(state[f"{part}/{name}"]))
            moments["step"].copy_(state[f"updates/{name}"])
        self.skipped = int(state["skipped"])
        self.spikes = int(state["spikes"])
        self._guard.restore(state["norms"])
        self._round()

    def close(self) -> None:
        """Stop collecting gradients, so that another optimizer may train the same model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _norm(self) -> Tensor:
        """The norm of all gradients, those of other ranks included; the same on every rank."""
        own = torch.nn.utils.get_total_norm(self._gradients)
        if self._ranks.size == 1:
            return own
        return self._ranks.sum(own.double().square(), "the gradient norm").sqrt()

    @torch.no_grad()
    def _round(self) -> None:
        for name, parameter in self._parameters.items():
            if self._offload or parameter.dtype != torch.float32:
                local(parameter).copy_(self._masters[name])


class _Accumulate:
    """Moves a parameter's fresh gradient into the fp32 sum, and frees it while the backward pass runs on."""

    def __init__(self, total: Tensor) -> None:
        self._total = total

    def __call__(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self._total.add_(local(parameter.grad).to(self._total.device))
            parameter.grad = None


def _master(name: str, parameter: nn.Parameter, offload: bool) -> Tensor:
    """This rank's part in fp32: the parameter itself if it is that, unless it is to lie on the CPU."""
    if parameter.dtype in (torch.float32, torch.bfloat16):
        part = local(parameter.detach())
        return part.to("cpu", torch.float32, copy=True) if offload else part.float()
    raise UserError(f"parameter `{name}` is {parameter.dtype}; train in bfloat16 or float32 (`model.dtype`)")
