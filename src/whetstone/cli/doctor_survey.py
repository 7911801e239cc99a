"""The checks of ``whetstone doctor``: the essential ones in about a second, or every probe."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from whetstone.core.errors import SandboxUnavailable, UserError
from whetstone.core.optional_packages import DISTRIBUTION
from whetstone.core.problem import Problem, Program, StdinCase, StdinTests
from whetstone.core.verdict import Verdict
from whetstone.engine.torch_environment import cpu_bf16_flags
from whetstone.judge.api import Judge
from whetstone.judge.environments.environment import (
    PackageEnvironment,
    default_environment,
    environment_named,
    named_environments,
)
from whetstone.judge.environments.installed import extras_of, version_of
from whetstone.judge.languages.language import SUM_INPUT, SUM_OUTPUT
from whetstone.judge.languages.table import LANGUAGES
from whetstone.judge.languages.toolchains import Availability, available_languages, found_languages
from whetstone.sandbox.probe import ProbeResult, probe
from whetstone.sandbox.supervision import supervisor_priority

# In its own process, because the import of torch takes seconds and much memory, and can fail.
_LIST_DEVICES = """
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
    "correct program": "def add(a, b):\n    return a + b\n",
    "wrong program": "def add(a, b):\n    return a - b\n",
    # A judge that trusts exit codes would accept this program.
    "program that exits with status 0": "import os\nos._exit(0)\n",
}
_SUM_PROBLEM = Problem("doctor/sum", "", StdinTests([StdinCase(SUM_INPUT, SUM_OUTPUT)]))
_ACCEPTED, _REJECTED = {Verdict.ACCEPTED}, set(Verdict) - {Verdict.ACCEPTED, Verdict.JUDGE_ERROR}


@dataclass(frozen=True)
class Accelerators:
    """The names of the devices, the version of torch (None: not installed), and why torch cannot use them."""

    devices: list[str]
    torch: str | None
    fault: str = ""


@dataclass(frozen=True)
class Survey:
    """The findings. ``full``: every probe ran. ``missing``: the distributions that each extra lacks."""

    full: bool
    probes: list[ProbeResult]
    languages: list[Availability]
    environments: list[PackageEnvironment]
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
        """Whether a tier starts and every probe passes, except those of other tiers, of Landlock and of named
        environments."""
        optional = ("tier ", "landlock", "environment ")
        return bool(self.tiers) and all(
            found.ok for found in self.probes if not found.name.startswith(optional)
        )


def examine() -> Survey:
    """Make the essential checks. No compiler runs, and torch is not imported."""
    probes = probe(limits=False)
    try:
        with Judge(workers=1) as judge:
            judged, languages = probe_judge(judge), found_languages(judge.isolation)
    except SandboxUnavailable as error:
        judged, languages = ProbeResult("judge", False, str(error)), found_languages("")
    return _survey([*probes, probe_limits_under_load(probes), judged], languages, _device_files(), full=False)


def examine_fully() -> Survey:
    """Run every probe: limits are exceeded, a program runs in every language, and torch is imported."""
    from whetstone.core.progress import Progress  # the only use of rich in this module

    with Progress() as progress:
        with progress.work("probing isolation", counted=False):
            probes = probe(limits=True)
        with progress.work("judging a program in every language", counted=False):
            try:
                with Judge(workers=1) as judge:
                    judged, languages = probe_judge(judge), probe_languages(judge)
            except SandboxUnavailable as error:
                judged, languages = ProbeResult("judge", False, str(error)), found_languages("")
        with progress.work("looking for accelerators", counted=False):
            accelerators = _torch_accelerators()
    return _survey([*probes, probe_limits_under_load(probes), judged], languages, accelerators, full=True)


def _survey(
    probes: list[ProbeResult], languages: list[Availability], accelerators: Accelerators, *, full: bool
) -> Survey:
    environments = [default_environment()]
    for name in named_environments():
        try:
            environments.append(environment_named(name))
        except UserError as error:
            probes.append(ProbeResult(f"environment {name}", False, str(error)))
    missing = {
        extra: [name for name in names if version_of(name) is None]
        for extra, names in extras_of(DISTRIBUTION).items()
    }
    try:
        bf16 = cpu_bf16_flags(Path("/proc/cpuinfo").read_text())
    except OSError:
        bf16 = []
    return Survey(full, probes, languages, environments, missing, accelerators, bf16)


def probe_limits_under_load(probes: list[ProbeResult]) -> ProbeResult:
    """Check whether limits that are measured from outside are enforced while every core is busy."""
    with supervisor_priority() as priority:
        priority.raise_priority()
        # The kernel returns the flag RESET_ON_FORK in the same number.
        has_priority = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
    grouped = any(found.name == "counts memory" and found.detail.startswith("control") for found in probes)
    detail = (
        "the supervisor of many processes has priority over programs"
        if has_priority
        else "the supervisor has no priority over programs: on a busy machine a run can exceed its limit on "
        f"CPU time{'' if grouped else ' or memory'} by more than a fifth (docs/threats.md); run as root to "
        "give it priority"
    )
    return ProbeResult("limits under load", True, detail)


def probe_judge(judge: Judge) -> ProbeResult:
    """Check whether a judge accepts a correct program and rejects a wrong and a cheating one."""
    verdicts = [judge.judge(_PROBLEM, Program("python", source)).verdict for source in _PROGRAMS.values()]
    ok = all(
        verdict in expected
        for verdict, expected in zip(verdicts, (_ACCEPTED, _REJECTED, _REJECTED), strict=True)
    )
    summary = ", ".join(f"{name}: {verdict.value}" for name, verdict in zip(_PROGRAMS, verdicts, strict=True))
    return ProbeResult("judge", ok, f"{summary} (isolation: {judge.isolation})")


def _device_files() -> Accelerators:
    """Return the accelerators by their device files. Whether torch can use them stays unknown."""
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


def _torch_accelerators() -> Accelerators:
    """Return the accelerators that torch can use."""
    torch = version_of("torch")
    if torch is None:
        return _device_files()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LIST_DEVICES], capture_output=True, text=True, timeout=_TORCH_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Accelerators([], torch, f"torch {torch} does not work: {error}")
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        return Accelerators([], torch, f"torch {torch} does not work: {last}")
    # The import of torch may print other lines first, so only the last line is read.
    devices: list[str] = json.loads(done.stdout.strip().rpartition("\n")[2])
    present = _device_files()
    if present.devices and not devices:
        return Accelerators(
            present.devices, torch, present.fault or f"torch {torch} cannot use the accelerators"
        )
    return Accelerators(devices, torch)


def probe_languages(judge: Judge) -> list[Availability]:
    """Return each language with its version, or with what is missing or does not work."""
    return [_probe_language(judge, found) if found.available else found for found in available_languages()]


def _probe_language(judge: Judge, availability: Availability) -> Availability:
    program = Program(availability.language, LANGUAGES[availability.language].probe_source)
    try:
        judged = judge.judge(_SUM_PROBLEM, program)
    except UserError as error:
        return Availability(availability.language, False, str(error))
    if judged.accepted:
        return availability
    return Availability(
        availability.language,
        False,
        f"{availability.detail}, but a sum was judged {judged.verdict.value}: {judged.reason}",
    )
