"""Selects whether a model decodes with fixed shapes, and executes its steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from whetstone.engine.architecture import OWN_ATTENTION, RopeLimits
from whetstone.engine.expert_routing import has_experts
from whetstone.engine.static_batch import Step, StepRunner, StepShape


def supports_static(model: Any, rope: RopeLimits) -> bool:
    """Return whether :class:`StaticBatch` decodes a model.

    Frequencies must not depend on the longest row, and the experts of a token must not be selected by
    waiting for them.
    """
    if rope.switch is not None or rope.max_tokens is not None or has_experts(model):
        return False
    return model.config.model_type not in OWN_ATTENTION


def step_runner(device: torch.device) -> StepRunner:
    """Return what executes the steps of one batch on a device."""
    return CapturedSteps() if device.type == "cuda" else EagerSteps()


class EagerSteps:
    """Executes steps operation by operation."""

    def run(self, shape: StepShape, step: Step) -> tuple[Tensor, Tensor]:
        """See StepRunner."""
        return step()

    def forget(self) -> None:
        """See StepRunner."""


class CapturedSteps:
    """Replays each shape of step as a CUDA graph. All graphs share their memory.

    The first step of a shape runs eagerly, so that libraries initialise what cannot be captured. The second
    is captured. A graph contains the addresses of the tensors of its batch, and must not outlive them.
    """

    def __init__(self) -> None:
        self._seen: set[StepShape] = set()
        self._graphs: dict[StepShape, tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor]]] = {}
        self._memory: Any = None

    def run(self, shape: StepShape, step: Step) -> tuple[Tensor, Tensor]:
        """See StepRunner."""
        if shape not in self._seen:
            self._seen.add(shape)
            return step()
        if shape not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            # The trainer's threads may allocate memory meanwhile.
            with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
                results = step()
            self._memory = self._memory or graph.pool()
            self._graphs[shape] = graph, results
        graph, results = self._graphs[shape]
        graph.replay()
        return results

    def forget(self) -> None:
        """See StepRunner."""
        self._seen.clear()
        self._graphs.clear()
        self._memory = None
