"""The manifest of an evaluation: data, sampling, limits and versions, for comparisons."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import msgspec

from whetstone import __version__
from whetstone.environments.settings import EnvironmentSection
from whetstone.evaluate.benchmarks import Benchmark
from whetstone.evaluate.plan import SamplingPlan


def build_manifest(
    benchmark: Benchmark,
    plan: SamplingPlan,
    settings: EnvironmentSection,
    *,
    model: dict[str, Any],
    grading: str,
    isolation: str,
    packages: str,
) -> dict[str, Any]:
    """Return the settings behind the figures as plain JSON values.

    ``model`` describes the writer of the replies: weights or endpoint, and their settings. ``isolation`` is
    the judge's tier, ``packages`` names the package environment of programs.
    """
    limits = {msgspec.json.encode(p.limits): msgspec.to_builtins(p.limits) for p in benchmark.problems}
    manifest = {
        "benchmark": {
            "name": benchmark.name,
            "part": benchmark.part,
            "source": benchmark.source,
            "file_sha256": benchmark.file_sha256,
            "problems_sha256": benchmark.problems_sha256,
            "problems": len(benchmark.problems),
            "left_out": benchmark.left_out,
            "prompt_shows": benchmark.shows,
        },
        "model": model,
        "sampling": plan.model_dump(mode="json"),
        "environment": settings.model_dump(mode="json"),
        "harness": grading,
        "judge": {"isolation": isolation, "environment": packages, "limits": list(limits.values())},
        "versions": {"whetstone": __version__, "python": platform.python_version()},
    }
    # As JSON returns it, without tuples.
    return msgspec.json.decode(msgspec.json.encode(manifest))


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Return the differing settings of two evaluations: ``key: value there, value here`` for each.

    The model is left out, since comparing models is the point.
    """
    return [text for key, text in _changes(a, b).items() if not key.startswith("model.")]


def resumable_differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Return the settings by which replies of evaluation ``a`` differ from those of ``b``, in the same
    form."""
    return [text for key, text in _changes(a, b).items() if key not in _ONLY_COUNTED]


# These settings change how replies are counted, not the replies.
_ONLY_COUNTED = frozenset({"sampling.k"})


def version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _changes(a: dict[str, Any], b: dict[str, Any]) -> dict[str, str]:
    flat_a, flat_b = flat_settings(a), flat_settings(b)
    keys = sorted(flat_a.keys() | flat_b.keys())
    changed = (key for key in keys if flat_a.get(key) != flat_b.get(key))
    return {key: f"{key} ({_shown(flat_a.get(key))} and {_shown(flat_b.get(key))})" for key in changed}


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def flat_settings(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested settings by dotted key."""
    if not isinstance(value, dict) or not value:
        return {prefix.rstrip("."): value}
    parts = (flat_settings(child, f"{prefix}{key}.") for key, child in value.items())
    return {key: leaf for part in parts for key, leaf in part.items()}
