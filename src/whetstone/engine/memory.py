"""Memory of this process: freed memory kept within a phase and handed back between two, and the peak so far.

The C library serves large blocks by mmap and unmaps them when freed, so that every temporary tensor
costs a page fault for each of its 4 KiB pages again and again. Where faults are dear (virtual
machines above all) this is a large share of the time of generation and training on a CPU. But what one phase
has freed lies in pieces that the next, whose tensors have other sizes, may not fit into: the heap would grow
to the sum of the phases instead of to the largest.
"""

from __future__ import annotations

import ctypes
import platform
import resource
import sys
from collections.abc import Callable
from typing import cast

# Parameter numbers of mallopt(3) in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4

_NEVER_TRIM = 2**31 - 1  # mallopt takes an int
_TOP_PAD_BYTES = 64 * 2**20


def keep_freed_memory() -> bool:
    """Tell the C library to serve all sizes from the heap and never to shrink it.

    Call once, before the first large allocation. The process then stays at its peak size, but for what
    ``return_freed_memory`` takes back. Returns whether the setting took effect; without glibc it does nothing
    and returns False.
    """
    mallopt = _of_glibc("mallopt")
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER_TRIM), (_M_TOP_PAD, _TOP_PAD_BYTES))
    return mallopt is not None and all(mallopt(parameter, value) == 1 for parameter, value in settings)


def return_freed_memory() -> None:
    """Hand back to the kernel what is free now, at the border of two phases. Without glibc it does nothing.

    The pages that the next phase needs cost their faults again: some tenths of a second for each GB.
    """
    malloc_trim = _of_glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def return_device_memory() -> None:
    """Hand back what torch keeps of an accelerator's memory for later. Without one it does nothing."""
    import torch

    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()


def _of_glibc(name: str) -> Callable[..., int] | None:
    if platform.libc_ver()[0] != "glibc":
        return None
    try:
        return cast("Callable[..., int]", getattr(ctypes.CDLL("libc.so.6"), name))
    except (OSError, AttributeError):
        return None


def peak_bytes() -> int:
    """The most memory so far: of tensors on the accelerator, where there is one, else of this process."""
    import torch

    if torch.accelerator.is_available():
        return torch.accelerator.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
