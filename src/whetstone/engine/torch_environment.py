"""Environment variables that torch reads when it is loaded, set for runs on a CPU."""

from __future__ import annotations

import os
import sys

# Number of entries of oneDNN's cache of compiled kernels, and of torch's cache in front of it.
_KERNEL_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}


def sleep_while_waiting() -> bool:
    """Set OpenMP to passive waiting, unless the environment already sets it.

    By default an idle OpenMP thread spins for a while, which is good on an exclusive machine. If judge
    workers or other runs need the same cores it is harmful: the spinning thread occupies the core that the
    thread it waits for would need.

    Call before torch is first imported, since OpenMP reads its settings when it is loaded. Returns whether
    the call came in time and nothing was set before.
    """
    if "torch" in sys.modules or "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        return False
    os.environ["OMP_WAIT_POLICY"] = "passive"
    return True


def bound_kernel_caches() -> bool:
    """Limit the number of cached matrix-product kernels, unless the environment already sets it.

    There is one kernel of about 0.6 MB for each shape of a product, and both caches keep 1024 by default. The
    shapes of decoding batches and micro-batches change with every step, so the caches fill up with kernels
    that are never used again, 0.6 GB and more. One pass only needs a few shapes, repeated in every layer.

    Call before torch is first imported. Returns whether the call came in time.
    """
    if "torch" in sys.modules:
        return False
    for name, entries in _KERNEL_CACHES.items():
        os.environ.setdefault(name, entries)
    return True


# Names of bfloat16 instructions in ``/proc/cpuinfo``, on x86 and on ARM.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})


def cpu_bf16_flags(cpuinfo: str) -> list[str]:
    """The bfloat16 instruction sets that the text of ``/proc/cpuinfo`` names, sorted."""
    words: set[str] = set()
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            words.update(value.split())
    return sorted(_BF16_FLAGS & words)
