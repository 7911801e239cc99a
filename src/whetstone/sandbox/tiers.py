"""Finds the tiers that this machine offers by trying, strongest first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox.fork_server import ForkServer, StartRefused
from whetstone.sandbox.job import EndReason, RunLimits, SandboxFault, SandboxJob, Tier
from whetstone.sandbox.run import SandboxRun
from whetstone.sandbox.supervision import supervise
from whetstone.sandbox.zygote.profile import PYTHON, Profile

SCRIPT = "script"
EXECUTE = "execute"
SEQUENCE = "sequence"
BUILTIN_HARNESSES = {
    SCRIPT: Path(__file__).parent / "zygote" / "run_script.py",
    EXECUTE: Path(__file__).parent / "zygote" / "run_execute.py",
    SEQUENCE: Path(__file__).parent / "zygote" / "run_sequence.py",
}

_PROOF = SandboxJob(SCRIPT, b"print(6 * 7)", RunLimits(cpu_s=10.0, memory_bytes=1 << 30, output_bytes=1024))
# Minimum memory of a run of an interpreter without packages.
_BARE_BYTES = 12 << 20
# Tiers that failed before, with the reason. They are not tried again in this process.
_refusals: dict[Tier, str] = {}


def start_at(tier: Tier, harnesses: Mapping[str, Path], profile: Profile = PYTHON) -> ForkServer:
    """Start a fork-server of exactly this tier and test it with a run. Raises StartRefused."""
    server = ForkServer(tier, harnesses, profile)
    try:
        [result] = supervise([SandboxRun(server, _PROOF, 0)])
    except SandboxFault as fault:
        server.kill()
        raise StartRefused(str(fault)) from None
    if result.ended is not EndReason.EXITED or result.exit_code != 0 or result.stdout != b"42\n":
        server.kill()
        raise StartRefused(f"a program that prints 42 did not: {result.ended}, {result.stderr[-300:]!r}")
    if profile.imports:
        server.loaded_bytes = max(result.peak_bytes - _BARE_BYTES, 0)
    return server


def start_strongest(harnesses: Mapping[str, Path], minimum: Tier, profile: Profile = PYTHON) -> ForkServer:
    """Start a fork-server of the strongest tier that works.

    Raises SandboxUnavailable, with the reason for each tier, if that is below ``minimum``.
    """
    for tier in sorted(Tier, reverse=True):
        if tier < minimum:
            break
        if tier in _refusals:
            continue
        try:
            return start_at(tier, harnesses, profile)
        except StartRefused as refused:
            _refusals[tier] = str(refused)
    raise unavailable(minimum, {tier: why for tier, why in _refusals.items() if tier >= minimum})


def unavailable(wanted: Tier, reasons: Mapping[Tier, str]) -> SandboxUnavailable:
    """Return the error for a machine that cannot isolate as requested."""
    causes = "; ".join(f"{tier.label}: {why}" for tier, why in sorted(reasons.items(), reverse=True))
    return SandboxUnavailable(
        f"this machine cannot run programs at isolation tier `{wanted.label}` ({causes}). "
        "Ask for a lower minimum tier, or allow user namespaces or Landlock here "
        "(`whetstone doctor` shows what each tier needs)."
    )
