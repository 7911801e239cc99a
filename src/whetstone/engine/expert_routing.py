"""Records the experts that the routers of a mixture-of-experts model choose, and lets them choose recorded
ones.

A router scores all experts and takes the best ``k`` by ``torch.topk``. Only this call is observed or
replaced. So the weights of the experts are computed by the model's own formula from the current scores, with
gradients, whichever experts are chosen (rollout routing replay, Ma et al., arXiv 2510.11370).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whetstone.core.errors import UserError
from whetstone.core.sample import Routing

# The attribute names of a router in the layer classes of transformers.
_ROUTERS = ("gate", "router")

# More experts than this need two bytes.
_NARROW = 256

T = TypeVar("T")


class _Router(NamedTuple):
    """A router, the number of its layer, and the number of experts that it chooses from."""

    module: nn.Module
    layer: int
    experts: int


def has_experts(model: Any) -> bool:
    """Return whether a model has layers with experts."""
    return next(_routers(model), None) is not None


class ExpertRouters:
    """The routers of ``model``. Their ``forward`` is wrapped in place.

    Raises UserError for a model without experts.
    """

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        self._kind: str = config.model_type
        self._routers = list(_routers(model))
        if not self._routers:
            raise UserError(
                f"model type `{self._kind}` has no layers with experts, so no routing can be recorded or "
                "replayed; set `trainer.routing_replay` to false"
            )
        self.layers = int(config.num_hidden_layers)
        self.experts = max(router.experts for router in self._routers)
        self._k = 0
        self._recorded: dict[int, Tensor] | None = None
        self._replayed: Tensor | None = None
        for router in self._routers:
            cast(Any, router.module).forward = self._wrapped(router)

    def record(self, forward: Callable[[], T]) -> tuple[T, Tensor]:
        """Return the result of a forward pass and the experts that it chose: [tokens, layers, k] of uint8, or
        of int16 for more than 256 experts, on the CPU. Layers without experts have zeros.

        Raises UserError if a router does not choose by one ``torch.topk`` over its experts.
        """
        self._recorded = {}
        try:
            result = forward()
            chosen = self._recorded
        finally:
            self._recorded = None
        if len(chosen) < len(self._routers) or len({experts.shape for experts in chosen.values()}) > 1:
            raise UserError(
                f"the routers of model type `{self._kind}` choose experts in an unknown way, so their choice "
                "cannot be recorded; set `trainer.routing_replay` to false"
            )
        stacked = torch.stack([chosen[router.layer] for router in self._routers], 1)
        self._k = stacked.shape[-1]
        rows = stacked.new_zeros(len(stacked), self.layers, self._k, dtype=self._dtype)
        rows[:, [router.layer for router in self._routers]] = stacked.to(self._dtype)
        return result, rows.cpu()

    @contextmanager
    def replay(self, experts: Tensor) -> Generator[None]:
        """Let the routers choose ``experts`` in the forward passes of the block, and when a backward pass in
        it computes a layer again: [layers, tokens, k], in the order of the pass's flattened tokens."""
        self._replayed = experts
        try:
            yield
        finally:
            self._replayed = None

    def routing(self, rows: bytes) -> Routing | None:
        """Return the bytes of rows of ``record`` as part of a sample; None if there are none."""
        return Routing(self.layers, self._k, self._dtype != torch.uint8, rows) if rows else None

    def read(self, routing: Routing) -> Tensor:
        """Return recorded experts as ``record`` returns them. Raises UserError if they are not of this
        model."""
        dtype = torch.int16 if routing.wide else torch.uint8
        # torch wants a buffer that may be written.
        rows = torch.frombuffer(bytearray(routing.data), dtype=dtype) if routing.data else torch.zeros(0)
        rows = rows.to(self._dtype).view(-1, routing.layers, routing.k)
        if routing.layers != self.layers or (len(rows) and not 0 <= int(rows.max()) < self.experts):
            raise UserError(
                f"a reply has experts of {routing.layers} layers that were recorded with another model; this "
                f"one has {self.layers} layers and {self.experts} experts. Let the engine serve this model"
            )
        return rows

    @property
    def _dtype(self) -> torch.dtype:
        # torch computes little with uint16. The bits of int16 are the same.
        return torch.uint8 if self.experts <= _NARROW else torch.int16

    def _wrapped(self, router: _Router) -> Callable[[Tensor], Any]:
        forward = router.module.forward

        def route(hidden: Tensor) -> Any:
            if self._recorded is not None:
                with _Recorded(router.experts) as recorded:
                    result = forward(hidden)
                if recorded.chosen is not None:
                    self._recorded[router.layer] = recorded.chosen
                return result
            if self._replayed is not None:
                with _Replayed(router.experts, self._replayed[router.layer]):
                    return forward(hidden)
            return forward(hidden)

        # A compiled layer would be compiled again for each pass.
        return cast(Callable[[Tensor], Any], torch.compiler.disable(route))


class _Recorded(TorchFunctionMode):
    """Keeps the result of the ``topk`` over a router's experts: [tokens, k]."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self._experts = experts
        self.chosen: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if _is_topk(func) and _is_choice(args[0], self._experts):
            self.chosen = result[1]
        return result


class _Replayed(TorchFunctionMode):
    """Replaces the result of the ``topk`` over a router's experts by given ones: [tokens, k]."""

    def __init__(self, experts: int, chosen: Tensor) -> None:
        super().__init__()
        self._experts, self._chosen = experts, chosen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not _is_topk(func):
            return func(*args, **(kwargs or {}))
        scores = args[0]
        if _is_choice(scores, self._experts):
            chosen = self._chosen.to(scores.device, torch.long)
            return torch.return_types.topk((scores.gather(-1, chosen), chosen))
        # Routers with groups first exclude experts by group. The recorded ones must all remain.
        return torch.topk(scores, scores.shape[-1], dim=-1)


def _is_topk(func: Any) -> bool:
    return func in (torch.topk, torch.Tensor.topk)


def _is_choice(scores: Tensor, experts: int) -> bool:
    return scores.dim() == 2 and scores.shape[-1] == experts


def _routers(model: Any) -> Iterator[_Router]:
    for name, module in cast(nn.Module, model).named_modules():
        experts = getattr(getattr(module, "experts", None), "num_experts", None)
        if not isinstance(experts, int):
            continue
        found = [getattr(module, each, None) for each in _ROUTERS]
        layer = next((int(part) for part in name.split(".") if part.isdigit()), 0)
        yield from (_Router(router, layer, experts) for router in found if isinstance(router, nn.Module))
