"""Describes the machine: what a figure must be read with."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import whetstone
from benchmarks.device_day.context import SectionContext
from whetstone.engine.torch_engine import total_memory

_PACKAGES = ("torch", "transformers", "triton", "numpy", "zstandard", "blake3")


def describe_machine(context: SectionContext) -> None:
    """Record the machine, the versions and the commit."""
    facts: dict[str, Any] = {
        "command": f"python -m benchmarks.device_day {' '.join(_given_arguments())}",
        "commit": context.commit,
        "device": context.device,
        **_gpu(context.device),
        "CPU": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory, GiB": total_memory(torch.device("cpu")) / 2**30,
        "system": platform.platform(),
        "Python": platform.python_version(),
        "whetstone": whetstone.__version__,
        **{name: _version(name) for name in _PACKAGES},
        "CUDA of torch": torch.version.cuda or "none",
        "vLLM": _vllm_version(context.vllm),
        "trained model": context.model or "none: random weights",
    }
    for name, value in facts.items():
        context.record(item=name, value=value if isinstance(value, int | float) else str(value))


def _given_arguments() -> list[str]:
    arguments = sys.argv[1:]
    return arguments[: arguments.index("--only")] if "--only" in arguments else arguments


def _gpu(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {"device memory, GiB": total_memory(device) / 2**30}
    properties: Any = torch.cuda.get_device_properties(device)
    return {
        "device name": properties.name,
        "device memory, GiB": properties.total_memory / 2**30,
        "compute capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "driver": _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _vllm_version(interpreter: str) -> str:
    ask = "from importlib.metadata import version; print(version('vllm'))"
    return _output([interpreter, "-c", ask]) if interpreter else "not installed"


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({type(error).__name__})"
