"""AdamW on fp32 master weights, for a model that computes in bf16 or fp32.

A bf16 weight swallows an update smaller than its last bit, and RL's updates are that small. So the
optimizer owns fp32 masters, gradients are summed in fp32, and the model's weights are the masters
rounded. An fp32 model's own parameters are the masters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from whetstone.errors import UserError

_STATE = ("exp_avg", "exp_avg_sq")


def warmup_lr(lr: float, step: int, warmup_steps: int) -> float:
    """Linear warm-up: step 0 trains with lr / warmup_steps, step warmup_steps - 1 and later with lr."""
    return lr * min(1.0, (step + 1) / max(1, warmup_steps))


class MasterAdamW:
    """AdamW (arXiv 1711.05101) over ``parameters`` (name, parameter).

    Between construction and :meth:`close` every backward pass adds to the fp32 gradients, which are
    allocated once. Matrices decay, vectors (norms, biases) do not. ``skipped`` counts the updates left
    out because a gradient was not finite.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        grad_clip: float = 1.0,
    ) -> None:
        self.skipped = 0
        self._grad_clip = grad_clip
        self._parameters = {name: p for name, p in parameters if p.requires_grad}
        self._masters = {name: _master(name, p) for name, p in self._parameters.items()}
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

    def update(self, lr: float) -> float:
        """Apply the summed gradients, clear them, and return their global norm before clipping.

        A norm that is not finite changes nothing, is counted in ``skipped``, and is returned as it is.
        """
        norm = torch.nn.utils.get_total_norm(self._gradients)
        finite = bool(torch.isfinite(norm))
        if finite:
            scale = self._grad_clip / (float(norm) + 1e-6)
            if scale < 1.0:
                for gradient in self._gradients:
                    gradient.mul_(scale)
            for group in self._adam.param_groups:
                group["lr"] = lr
            self._adam.step()
            self._round()
        else:
            self.skipped += 1
        for gradient in self._gradients:
            gradient.zero_()
        return float(norm)

    def state_dict(self) -> dict[str, Tensor]:
        """Masters, both moments and update counts by name. The live tensors: save or copy them at once."""
        result: dict[str, Tensor] = {}
        for name, master in self._masters.items():
            result[f"master/{name}"] = master
            state: dict[str, Tensor] = self._adam.state.get(master, {})
            for part in _STATE:
                result[f"{part}/{name}"] = state[part] if state else torch.zeros_like(master)
            result[f"updates/{name}"] = state["step"] if state else torch.zeros(())
        result["skipped"] = torch.tensor(self.skipped)
        return result

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take masters, moments and counts, and round the masters into the model.

        Raises UserError when names or shapes are not those of this model.
        """
        for name, master in self._masters.items():
            saved = state.get(f"master/{name}")
            if saved is None or saved.shape != master.shape:
                shape = "missing" if saved is None else f"of shape {list(saved.shape)}"
                raise UserError(
                    f"the saved optimizer state does not fit the model: `{name}` is {shape}, "
                    f"not {list(master.shape)}; resume with the model the run was started with"
                )
        for name, master in self._masters.items():
            master.copy_(state[f"master/{name}"])
            moments: dict[str, Any] = {p: state[f"{p}/{name}"].to(master.device, copy=True) for p in _STATE}
            self._adam.state[master] = {"step": state[f"updates/{name}"].clone(), **moments}
        self.skipped = int(state["skipped"])
        self._round()

    def close(self) -> None:
        """Stop collecting gradients, so that another optimizer may train the same model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    @torch.no_grad()
    def _round(self) -> None:
        for name, parameter in self._parameters.items():
            if parameter.dtype != torch.float32:
                parameter.copy_(self._masters[name])


class _Accumulate:
    """Moves a parameter's fresh gradient into the fp32 sum, and frees it while the backward pass runs on."""

    def __init__(self, total: Tensor) -> None:
        self._total = total

    def __call__(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self._total.add_(parameter.grad)
            parameter.grad = None


def _master(name: str, parameter: nn.Parameter) -> Tensor:
    if parameter.dtype == torch.float32:
        return parameter.detach()
    if parameter.dtype == torch.bfloat16:
        return parameter.detach().float()
    raise UserError(f"parameter `{name}` is {parameter.dtype}; train in bfloat16 or float32 (`model.dtype`)")
