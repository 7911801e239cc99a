"""What accepted references use, and the limits that follow from the slowest and the largest."""

from __future__ import annotations

import math

import msgspec
from msgspec import Struct

from whetstone.data.validate.policy import Policy
from whetstone.judge import Judgement
from whetstone.problem import Limits

_MB = 1 << 20
_CPU_STEP_S = 0.1
_MEMORY_STEP_MB = 16


class Cost(Struct, frozen=True):
    """The most that any case of any run used: CPU seconds, and MB of resident memory.

    Of cases that shared a process only the sum is known, so the sum stands for each: it is no less.
    """

    cpu_s: float
    peak_mb: float


def cost_of(judgements: list[Judgement]) -> Cost:
    """The cost of the slowest and of the largest case."""
    cpu_s = max((_slowest(judgement) for judgement in judgements), default=0.0)
    peak = max((case.peak_bytes for judgement in judgements for case in judgement.cases), default=0)
    return Cost(cpu_s, peak / _MB)


def _slowest(judgement: Judgement) -> float:
    times = [case.cpu_s for case in judgement.cases]
    return sum(times) if judgement.shared_process else max(times, default=0.0)


def limits_for(limits: Limits, cost: Cost, policy: Policy) -> Limits:
    """The limits, raised where the policy's factors ask for more; never lowered."""
    cpu_s = min(policy.cpu_factor * cost.cpu_s, policy.most_cpu_s)
    memory_mb = min(policy.memory_factor * cost.peak_mb, policy.most_memory_mb)
    return msgspec.structs.replace(
        limits,
        cpu_s=max(limits.cpu_s, _up(cpu_s, _CPU_STEP_S)),
        memory_mb=max(limits.memory_mb, _up(memory_mb, _MEMORY_STEP_MB)),
    )


def _up(value: float, step: float) -> float:
    """The next multiple of ``step``, so that runs that differ a little set the same limit."""
    return round(math.ceil(value / step - 1e-9) * step, 6)
