"""Running one untrusted program within limits, and saying what happened. No tests, no rewards."""

from whetstone.sandbox.client import Sandbox
from whetstone.sandbox.job import Ended, Job, RunLimits, RunResult, SandboxFault, Stopped, Tier
from whetstone.sandbox.probe import ProbeResult, probe
from whetstone.sandbox.run import Run
from whetstone.sandbox.supervise import supervise
from whetstone.sandbox.tiers import detect_tier
from whetstone.sandbox.zygote.lockdown import MAX_OPEN_FILES, MAX_TASKS
from whetstone.sandbox.zygote.profile import TMP_BYTES, Profile

__all__ = [
    "MAX_OPEN_FILES",
    "MAX_TASKS",
    "TMP_BYTES",
    "Ended",
    "Job",
    "ProbeResult",
    "Profile",
    "Run",
    "RunLimits",
    "RunResult",
    "Sandbox",
    "SandboxFault",
    "Stopped",
    "Tier",
    "detect_tier",
    "probe",
    "supervise",
]
