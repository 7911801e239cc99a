"""Running one untrusted program within limits, and saying what happened. No tests, no rewards.

The names are imported when they are first used: a caller of the judge needs ``Tier`` and no fork-server.
"""

from typing import TYPE_CHECKING

from whetstone.lazy import lazy_names

if TYPE_CHECKING:
    from whetstone.sandbox.client import Sandbox
    from whetstone.sandbox.job import Ended, Job, RunLimits, RunResult, SandboxFault, Stopped, Tier
    from whetstone.sandbox.run import Run
    from whetstone.sandbox.starvation import LostTime
    from whetstone.sandbox.supervision import supervise
    from whetstone.sandbox.tiers import detect_tier
    from whetstone.sandbox.zygote.lockdown import MAX_OPEN_FILES, MAX_TASKS
    from whetstone.sandbox.zygote.profile import TMP_BYTES, Profile

__all__ = [
    "MAX_OPEN_FILES",
    "MAX_TASKS",
    "TMP_BYTES",
    "Ended",
    "Job",
    "LostTime",
    "Profile",
    "Run",
    "RunLimits",
    "RunResult",
    "Sandbox",
    "SandboxFault",
    "Stopped",
    "Tier",
    "detect_tier",
    "supervise",
]

__getattr__ = lazy_names(
    __name__,
    {
        "whetstone.sandbox.client": ["Sandbox"],
        "whetstone.sandbox.job": [
            "Ended",
            "Job",
            "RunLimits",
            "RunResult",
            "SandboxFault",
            "Stopped",
            "Tier",
        ],
        "whetstone.sandbox.run": ["Run"],
        "whetstone.sandbox.starvation": ["LostTime"],
        "whetstone.sandbox.supervision": ["supervise"],
        "whetstone.sandbox.tiers": ["detect_tier"],
        "whetstone.sandbox.zygote.lockdown": ["MAX_OPEN_FILES", "MAX_TASKS"],
        "whetstone.sandbox.zygote.profile": ["TMP_BYTES", "Profile"],
    },
)
