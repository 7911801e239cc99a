"""Process memory: keep freed memory within a phase, return it between phases, and measure the peak.

The C library allocates large blocks with mmap and unmaps them when freed. Every temporary tensor then costs a
page fault for each 4 KiB page. On virtual machines this is a large share of the time of generation and
training on a CPU. But memory freed in one phase is fragmented for the tensor sizes of the next, so the heap
would grow to the sum of the phases instead of the largest.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch

# Parameter numbers of mallopt(3) in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4

# The largest int, which is the type of mallopt's argument.
_NEVER_TRIM = 2**31 - 1
_TOP_PAD_BYTES = 64 * 2**20

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

# The embedded engine's cache gets this fraction of the device's memory, because the trainer needs the rest.
_CACHE_SHARE = 4


def keep_freed_memory() -> bool:
    """Configure the C library to allocate all sizes from the heap and never shrink it.

    Call once, before the first large allocation. The process then stays at its peak size, except for what
    ``return_freed_memory`` returns. Returns whether the setting took effect; False without glibc.
    """
    mallopt = _glibc_function("mallopt")
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER_TRIM), (_M_TOP_PAD, _TOP_PAD_BYTES))
    return mallopt is not None and all(mallopt(parameter, value) == 1 for parameter, value in settings)


def return_freed_memory() -> None:
    """Return free memory to the kernel, between two phases. Does nothing without glibc.

    The next phase's pages cost their faults again: some tenths of a second per GB.
    """
    malloc_trim = _glibc_function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def return_device_memory() -> None:
    """Release the accelerator memory that torch caches. Does nothing without an accelerator."""
    import torch

    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()


def _glibc_function(name: str) -> Callable[..., int] | None:
    if platform.libc_ver()[0] != "glibc":
        return None
    try:
        return cast("Callable[..., int]", getattr(ctypes.CDLL("libc.so.6"), name))
    except (OSError, AttributeError):
        return None


def peak_bytes() -> int:
    """Return the peak memory so far: of tensors on the accelerator if there is one, else of this process."""
    import torch

    if torch.accelerator.is_available():
        return torch.accelerator.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def total_memory(device: torch.device) -> int:
    """Return the bytes of memory of ``device``; for the CPU, those of the machine or the container's
    limit."""
    import torch

    if device.type != "cpu":
        properties: Any = torch.get_device_module(device).get_device_properties(device)
        return int(properties.total_memory)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(limit for path in _LIMITS if (limit := _limit(Path(path))) is not None)])


def cache_limit(cache_mb: int | None, total: int) -> int:
    """Return the most bytes of the embedded engine's cache on a device with ``total`` bytes."""
    return cache_mb << 20 if cache_mb else total // _CACHE_SHARE


def _limit(path: Path) -> int | None:
    """Return the bytes in a control group's file; None if there is no file or no limit."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
