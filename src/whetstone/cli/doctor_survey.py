"""What ``whetstone doctor`` examines: the essentials in about a second, or every probe."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from whetstone.engine.cpu_flags import cpu_bf16_flags
from whetstone.errors import SandboxUnavailable
from whetstone.judge.api import Judge
from whetstone.judge.environments.environment import (
    Environment,
    default_environment,
    environment_named,
    named_environments,
)
from whetstone.judge.environments.installed import extras_of, version_of
from whetstone.judge.languages.probe import probe_languages
from whetstone.judge.languages.toolchains import Availability, found_languages
from whetstone.problem import Program
from whetstone.sandbox.priority import turn
from whetstone.sandbox.probe import ProbeResult, probe
from whetstone.verdict import Verdict

PROJECT = "whetstone-rl"
# In a process of its own: torch takes seconds and memory to import, and the import can fail.
_ASK_TORCH = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps([torch.cuda.get_device_name(i) for i in range(count)]))
"""
_TORCH_TIMEOUT_S = 120
_DEVICE_FILES = {
    "NVIDIA GPU": "/dev/nvidia[0-9]*",
    "AMD GPU": "/dev/kfd",
    "Ascend NPU": "/dev/davinci[0-9]*",
    "Intel Gaudi": "/dev/accel/accel[0-9]*",
}
_PROBLEM = {
    "id": "doctor/add",
    "statement": "",
    "tests": {"kind": "assert", "asserts": ["assert add(1, 2) == 3"]},
}
_PROGRAMS = {
    "right program": "def add(a, b):\n    return a + b\n",
    "wrong program": "def add(a, b):\n    return a - b\n",
    "program that exits with status 0": "import os\nos._exit(0)\n",
}
_ACCEPTED, _REFUSED = {Verdict.ACCEPTED}, set(Verdict) - {Verdict.ACCEPTED, Verdict.JUDGE_ERROR}


@dataclass(frozen=True)
class Accelerators:
    """``devices`` by name, the version of torch (None: not installed), and why it cannot use them."""

    devices: list[str]
    torch: str | None
    fault: str = ""


@dataclass(frozen=True)
class Survey:
    """What was found. ``full``: every probe ran. ``missing``: the distributions that each extra lacks."""

    full: bool
    probes: list[ProbeResult]
    languages: list[Availability]
    environments: list[Environment]
    missing: dict[str, list[str]]
    accelerators: Accelerators
    bf16: list[str]

    @property
    def tiers(self) -> list[str]:
        """The tiers that start here, strongest first."""
        names = [found.name for found in self.probes if found.ok]
        return [name.removeprefix("tier ") for name in names if name.startswith("tier ")]

    @property
    def safe(self) -> bool:
        """Whether a tier starts and every probe holds, except those of other tiers and of Landlock."""
        optional = ("tier ", "landlock")
        return bool(self.tiers) and all(
            found.ok for found in self.probes if not found.name.startswith(optional)
        )


def examine() -> Survey:
    """The essentials: no compiler runs, and torch is not imported."""
    probes = probe(limits=False)
    try:
        with Judge(workers=1) as judge:
            judged, languages = judge_probe(judge), found_languages(judge.isolation)
    except SandboxUnavailable as error:
        judged, languages = ProbeResult("judge", False, str(error)), found_languages("")
    return _survey([*probes, under_load(probes), judged], languages, _device_files(), full=False)


def examine_fully() -> Survey:
    """Every probe: limits are exceeded, a program runs in every language, and torch is imported."""
    from whetstone.progress import Progress  # the only user of rich here

    with Progress() as progress:
        with progress.work("probing isolation", counted=False):
            probes = probe(limits=True)
        with progress.work("judging a program in every language", counted=False):
            try:
                with Judge(workers=1) as judge:
                    judged, languages = judge_probe(judge), probe_languages(judge)
            except SandboxUnavailable as error:
                judged, languages = ProbeResult("judge", False, str(error)), found_languages("")
        with progress.work("looking for accelerators", counted=False):
            accelerators = _seen_by_torch()
    return _survey([*probes, under_load(probes), judged], languages, accelerators, full=True)


def _survey(
    probes: list[ProbeResult], languages: list[Availability], accelerators: Accelerators, *, full: bool
) -> Survey:
    environments = [default_environment(), *map(environment_named, named_environments())]
    missing = {
        extra: [name for name in names if version_of(name) is None]
        for extra, names in extras_of(PROJECT).items()
    }
    try:
        bf16 = cpu_bf16_flags(Path("/proc/cpuinfo").read_text())
    except OSError:
        bf16 = []
    return Survey(full, probes, languages, environments, missing, accelerators, bf16)


def under_load(probes: list[ProbeResult]) -> ProbeResult:
    """Whether limits that are measured from outside hold while every core is busy."""
    with turn() as mine:
        mine.go_first()
        first = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
    grouped = any(found.name == "counts memory" and found.detail.startswith("control") for found in probes)
    detail = (
        "the supervisor of many processes has priority over programs"
        if first
        else "the supervisor has no priority over programs: on a busy machine a run can exceed its limit on "
        f"CPU time{'' if grouped else ' or memory'} by more than a fifth (docs/threats.md); run as root to "
        "give it priority"
    )
    return ProbeResult("limits under load", True, detail)


def judge_probe(judge: Judge) -> ProbeResult:
    """Whether a judge accepts a right program and refuses a wrong one and a cheating one."""
    verdicts = [judge.judge(_PROBLEM, Program("python", source)).verdict for source in _PROGRAMS.values()]
    ok = all(
        verdict in wanted for verdict, wanted in zip(verdicts, (_ACCEPTED, _REFUSED, _REFUSED), strict=True)
    )
    said = ", ".join(f"{name}: {verdict.value}" for name, verdict in zip(_PROGRAMS, verdicts, strict=True))
    return ProbeResult("judge", ok, f"{said} (isolation: {judge.isolation})")


def _device_files() -> Accelerators:
    """Accelerators by the files of their drivers: whether torch can use them is not known."""
    models = [
        line.partition(":")[2].strip()
        for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information"))
        for line in Path(path).read_text(errors="replace").splitlines()
        if line.startswith("Model:")
    ]
    others = [
        kind
        for kind, pattern in _DEVICE_FILES.items()
        for _ in glob.glob(pattern)
        if not (models and kind == "NVIDIA GPU")
    ]
    torch = version_of("torch")
    only_cpu = bool(models + others) and torch is not None and torch.endswith("+cpu")
    return Accelerators(
        models + others, torch, f"torch {torch} is built for the CPU only" if only_cpu else ""
    )


def _seen_by_torch() -> Accelerators:
    """The accelerators that torch can use."""
    torch = version_of("torch")
    if torch is None:
        return _device_files()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, timeout=_TORCH_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Accelerators([], torch, f"torch {torch} does not work: {error}")
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        return Accelerators([], torch, f"torch {torch} does not work: {last}")
    devices: list[str] = json.loads(done.stdout.strip().rpartition("\n")[2])
    present = _device_files()
    if present.devices and not devices:
        return Accelerators(
            present.devices, torch, present.fault or f"torch {torch} cannot use the accelerators"
        )
    return Accelerators(devices, torch)
