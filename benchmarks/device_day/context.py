"""What a section gets: the device, the size of the run, and where to put figures."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.device_day.results import Results
from whetstone.engine.memory import return_device_memory
from whetstone.engine.out_of_memory import is_out_of_memory


@dataclass(frozen=True)
class SectionContext:
    """The arguments of a section.

    small: a rehearsal, with tiny models. model: a folder with a trained model, or None. vllm: an interpreter
    with vLLM, or empty. scratch: a folder for temporary files. commit: of the repository.
    """

    section: str
    device: torch.device
    small: bool
    model: Path | None
    vllm: str
    scratch: Path
    commit: str
    results: Results

    @property
    def dtype(self) -> torch.dtype:
        """The compute type: bfloat16 on a device. Many CPUs emulate it."""
        return torch.float32 if self.device.type == "cpu" else torch.bfloat16

    def record(self, **figures: Any) -> None:
        """Store figures, which are on the disk when this returns."""
        self.results.add(self.section, **figures)

    def note(self, **values: Any) -> None:
        """Store values that are no row of a table."""
        self.results.add(self.section, "note", **values)

    @contextmanager
    def attempt(self, **which: Any) -> Generator[None]:
        """A context for one of several measurements: a failure is recorded, and the section goes on.

        ``which`` describes the measurement. The memory of a failed one is free afterwards.
        """
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            full = is_out_of_memory(error.__cause__ or error)
            self.note(**which, outcome="out of memory" if full else f"{type(error).__name__}: {error}")
            # The frames of the error hold tensors.
            traceback.clear_frames(error.__traceback__)
            free_memory()


def free_memory() -> None:
    """Free tensors that only unreachable objects hold, such as those of a former model."""
    gc.collect()
    return_device_memory()
