"""A survey as text: what works, what is missing with its remedy, and the conclusion."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

from whetstone import __version__
from whetstone.cli.doctor_survey import Survey
from whetstone.cli.parser import hanging_lines
from whetstone.core.optional_packages import install_command
from whetstone.judge.environments.environment import COMPETITION
from whetstone.judge.environments.missing import way_out

WIDTH = 80
_LABEL_WIDTH = 18
# The extras and their purposes, except those for the development of Whetstone.
_EXTRAS = {
    "train": "training, and replies from models",
    "lora": "training of adapters (LoRA)",
    "serve": "the judge over HTTP, and `whetstone view`",
    "programs": "the packages that competition programs import",
    "parquet": "datasets and exports in Parquet",
    "data": "public datasets",
    "eval": "evaluation of OpenAI-compatible endpoints",
    "mcp": "the judge as tools of an agent",
    "ray": "the judge and training on several machines",
}
_TIERS = {
    "root": "run as root; a container also needs --privileged (docs/deployment.md)",
    "userns": "sysctl -w kernel.unprivileged_userns_clone=1, on Ubuntu sysctl -w "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container see docs/deployment.md",
    "restricted": "use Linux 5.13 or later with Landlock and seccomp",
    "landlock": "use Linux 5.13 or later with Landlock",
}
_NO_JUDGING = "judge no untrusted program here, and report this (SECURITY.md)"
# The successful probes that have a line of their own on the short page.
_SHORT_PAGE_PROBES = ("counts memory", "limits under load")
Row = tuple[str, str]


def page(survey: Survey) -> list[str]:
    """Return the lines of the page. No line is longer than ``WIDTH``."""
    cores = len(os.sched_getaffinity(0))
    system = f"{platform.system()} {platform.release()}, {cores} cores"
    lines = hanging_lines("", f"Whetstone {__version__}, Python {platform.python_version()}, {system}", WIDTH)
    lines += ["", "What works", *_rows(_working_rows(survey))]
    lines += ["", "What is missing", *_rows(_missing_rows(survey)), ""]
    return lines + hanging_lines("", f"Conclusion: {_conclusion(survey)}", WIDTH)


def _rows(rows: Iterator[Row]) -> list[str]:
    """Return the rows with labels. Consecutive rows with the same label show it once."""
    lines: list[str] = []
    last = ""
    for label, text in rows:
        lines += hanging_lines(f"  {'' if label == last else label:{_LABEL_WIDTH}}", text, WIDTH)
        last = label
    return lines or ["  nothing"]


def _working_rows(survey: Survey) -> Iterator[Row]:
    if survey.tiers:
        yield "isolation", f"tiers: {', '.join(survey.tiers)}"
    passed = [found for found in survey.probes if found.ok and not found.name.startswith("tier ")]
    stopped = sum(found.name.startswith("a program cannot") for found in passed)
    if stopped and not survey.full:
        yield "isolation", f"{stopped} attempts of a program to leave its sandbox were refused"
    for found in passed:
        if found.name != "judge" and (survey.full or found.name in _SHORT_PAGE_PROBES):
            yield "isolation", f"{found.name}: {found.detail}"
    yield from (("judge", found.detail) for found in passed if found.name == "judge")
    available = [found for found in survey.languages if found.available]
    if survey.full:
        yield from (("languages", f"{found.language}: {found.detail}") for found in available)
    else:
        yield "languages", ", ".join(found.language for found in available)
    for environment in survey.environments:
        packages = ", ".join(f"{name} {version}" for name, version in sorted(environment.versions.items()))
        yield "packages", f"{environment.label}: {packages or 'none'}"
    if installed := [extra for extra in _EXTRAS if survey.missing.get(extra) == []]:
        yield "extras", ", ".join(installed)
    if survey.accelerators.torch is not None:
        yield "torch", survey.accelerators.torch
    if survey.accelerators.devices and not survey.accelerators.fault:
        yield "accelerators", ", ".join(survey.accelerators.devices)
    if survey.bf16:
        yield "bf16", f"the CPU has {', '.join(survey.bf16)}"


def _missing_rows(survey: Survey) -> Iterator[Row]:
    for found in survey.probes:
        if not found.ok:
            yield "isolation", f"{found.name}: {found.detail}"
            yield "", f"Remedy: {_TIERS.get(found.name.removeprefix('tier '), _NO_JUDGING)}"
    for found in survey.languages:
        if not found.available:
            lacks, _, remedy = found.detail.partition(": install ")
            yield found.language, lacks
            if remedy:
                yield "", f"Remedy: install {remedy}"
    if lacking := [name for name in COMPETITION if name not in survey.environments[0].modules]:
        yield "packages", f"programs cannot import {', '.join(lacking)}"
        yield "", f"Remedy: {way_out(lacking[0], survey.environments[0])}"
    for extra, purpose in _EXTRAS.items():
        if names := survey.missing.get(extra):
            yield extra, f"{purpose}; not installed: {', '.join(names)}"
            yield "", f"Remedy: {install_command(extra)}"
    if survey.accelerators.fault:
        yield "accelerators", survey.accelerators.fault
        yield "", "Remedy: install torch for this accelerator (https://pytorch.org/get-started/locally)"
    elif not survey.accelerators.devices:
        yield "accelerators", "none was found; models run on the CPU"
        yield "", "Remedy: for models of more than about 1B parameters, use a machine with a GPU"
    if not survey.bf16:
        yield "bf16", "the CPU has no bfloat16 instructions: `dtype: auto` means float32 on it"


def _conclusion(survey: Survey) -> str:
    judging = (
        f"programs can be judged here (isolation: {survey.tiers[0]})"
        if survey.safe
        else "programs cannot be judged safely here"
    )
    if survey.missing.get("train") or survey.accelerators.torch is None:
        return f"{judging}; models cannot be trained without the extra `train`."
    usable = survey.accelerators.devices and not survey.accelerators.fault
    return f"{judging}; models can be trained on {survey.accelerators.devices[0] if usable else 'the CPU'}."
