"""Which dtype ``auto`` stands for: bfloat16 where the device computes it natively, float32 elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from whetstone.engine.cpu_flags import cpu_bf16_flags


def resolve_dtype(dtype: str, device: torch.device) -> str:
    """The dtype to compute in on ``device``: ``dtype`` itself, or what ``auto`` stands for there.

    A processor without bfloat16 instructions emulates them, at a tenth to a hundredth of the speed of
    float32, so the choice is made by capability.
    """
    if dtype != "auto":
        return dtype
    return "bfloat16" if computes_bf16(device) else "float32"


def computes_bf16(device: torch.device) -> bool:
    """Whether ``device`` has bfloat16 instructions; False for one that does not report them."""
    if device.type == "meta":
        return True
    if device.type == "cpu":
        return _cpu_computes_bf16()
    module: Any = torch.get_device_module(device)
    supported = getattr(module, "is_bf16_supported", None)
    if supported is None:
        return False
    # CUDA emulates bfloat16 before compute capability 8.0 and reports that as supported.
    return bool(supported(including_emulation=False) if device.type == "cuda" else supported())


def _cpu_computes_bf16() -> bool:
    try:
        flags = cpu_bf16_flags(Path("/proc/cpuinfo").read_text())
    except OSError:
        return False
    # ATEN_CPU_CAPABILITY=avx2 masks the instructions for torch's kernels; x86 has them from AVX-512 on.
    masked = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX", "AVX2")
    return bool(flags) and not (masked and any(flag.endswith("_bf16") for flag in flags))
