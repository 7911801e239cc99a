"""What a figure needs beside it to be compared with another: data, sampling, limits, versions."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import msgspec

from whetstone import __version__
from whetstone.evaluate.benchmarks import Benchmark
from whetstone.evaluate.plan import Plan
from whetstone.recipe import WorkflowSection


def build_manifest(
    benchmark: Benchmark,
    plan: Plan,
    workflow: WorkflowSection,
    *,
    model: str,
    dtype: str,
    device: str,
    isolation: str,
) -> dict[str, Any]:
    """Plain data that says how the figures came about. ``isolation`` is the judge's tier."""
    limits = {msgspec.json.encode(p.limits): msgspec.to_builtins(p.limits) for p in benchmark.problems}
    return {
        "benchmark": {
            "name": benchmark.name,
            "source": benchmark.source,
            "file_sha256": benchmark.file_sha256,
            "problems_sha256": benchmark.problems_sha256,
            "problems": len(benchmark.problems),
            "prompt_shows": benchmark.shows,
        },
        "model": {"source": model, "dtype": dtype, "device": device},
        "sampling": msgspec.to_builtins(plan),
        "workflow": workflow.model_dump(mode="json"),
        "judge": {"isolation": isolation, "limits": list(limits.values())},
        "versions": {
            "whetstone": __version__,
            "python": platform.python_version(),
            "torch": _version("torch"),
            "transformers": _version("transformers"),
        },
    }


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What makes two evaluations less comparable: the manifest keys, as paths, that are not equal.

    The model is left out, since comparing models is the point.
    """
    flat_a, flat_b = _flat(a), _flat(b)
    keys = sorted(flat_a.keys() | flat_b.keys())
    return [k for k in keys if not k.startswith("model.") and flat_a.get(k) != flat_b.get(k)]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {k: v for key, child in value.items() for k, v in _flat(child, f"{prefix}{key}.").items()}
    return {prefix.rstrip("."): value}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
