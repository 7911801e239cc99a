"""Resolves device names and the dtype ``auto``; the only module that queries torch for devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch

from whetstone.core.errors import UserError
from whetstone.engine.torch_environment import cpu_bf16_flags


def accelerator() -> str | None:
    """Return the kind of accelerator that torch sees (`cuda`, `npu`, `xpu`, ...), or None."""
    if not torch.accelerator.is_available():
        return None
    current = torch.accelerator.current_accelerator()
    return None if current is None else current.type


def pick_device(device: str) -> torch.device:
    """Return the device for a name; ``auto`` is the accelerator if there is one, else the CPU.

    A kind without a number is the current device of that kind, which differs between ranks.
    """
    kind = accelerator()
    if device == "auto":
        device = kind or "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise UserError(f"unknown device `{device}`; give auto, cpu, cuda or cuda:N") from None
    if chosen.type in ("cpu", "meta"):
        return chosen
    if chosen.type != kind:
        raise UserError(f"device `{device}`: this torch sees no such device; give `auto` or `cpu`")
    index = cast("int | None", chosen.index)
    if index is None:
        return torch.device(chosen.type, torch.accelerator.current_device_index())
    if index >= torch.accelerator.device_count():
        raise UserError(
            f"device `{device}`: there are {torch.accelerator.device_count()}, counted from 0; "
            f"give `{kind}` or one of them"
        )
    return chosen


def resolve_dtype(dtype: str, device: torch.device) -> str:
    """Return the dtype for ``device``: ``dtype`` itself, or the choice for ``auto``.

    A processor without bfloat16 instructions emulates them at 1 % to 10 % of float32's speed, so the choice
    depends on the hardware.
    """
    if dtype != "auto":
        return dtype
    return "bfloat16" if computes_bf16(device) else "float32"


def computes_bf16(device: torch.device) -> bool:
    """Return whether ``device`` has bfloat16 instructions; False if it does not report them."""
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
