"""What torch reads of the environment when it is loaded, set as a run on a CPU wants it."""

from __future__ import annotations

import os
import sys

_KERNEL_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}
"""oneDNN's cache of compiled kernels and the one that torch has before it, by number of entries."""


def sleep_while_waiting() -> bool:
    """Ask OpenMP for passive waiting, unless the environment already says how to wait.

    An idle OpenMP thread by default burns its core for a while in the hope of more work. That is right
    on a machine of one's own. Where judge workers or other runs want the same cores it is ruinous: the
    spinning thread holds the core that the thread it waits for would need.

    Call before torch is first imported, since OpenMP reads its settings when it is loaded. Returns
    whether the call came in time and nothing was set before.
    """
    if "torch" in sys.modules or "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        return False
    os.environ["OMP_WAIT_POLICY"] = "passive"
    return True


def bound_kernel_caches() -> bool:
    """Keep few compiled kernels of matrix products, unless the environment already says how many.

    There is one for each shape of a product, of some 0.6 MB, and both caches keep 1024 by default. The rows
    of a decoding batch and of a micro-batch are other ones in every step, so they fill up with what never
    comes again, by 0.6 GB and more. A pass asks for a handful of shapes, once in every layer.

    Call before torch is first imported. Returns whether the call came in time.
    """
    if "torch" in sys.modules:
        return False
    for name, entries in _KERNEL_CACHES.items():
        os.environ.setdefault(name, entries)
    return True
