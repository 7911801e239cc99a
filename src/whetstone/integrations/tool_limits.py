"""What a call of the judge's tools may use, without the imports of the server."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from whetstone.core.flag import Flag
from whetstone.core.problem import MOST_CPU_S, MOST_MEMORY_MB


class ToolCallLimits(Struct, frozen=True, kw_only=True):
    """What a call may use. ``max_chars`` bounds its arguments as JSON, ``max_pending`` the calls at once."""

    max_cpu_s: Annotated[
        float,
        Meta(gt=0, le=MOST_CPU_S),
        Flag("the most CPU seconds of a case, or of a run", "S", name="max-cpu"),
    ] = 10.0
    max_memory_mb: Annotated[
        float, Meta(gt=0, le=MOST_MEMORY_MB), Flag("the most memory of a case, or of a run", "MB")
    ] = 1024.0
    max_cases: Annotated[int, Meta(ge=1), Flag("the most cases of a call", "N")] = 1000
    deadline_s: Annotated[
        float,
        Meta(gt=0, le=MOST_CPU_S),
        Flag("the longest time of a call, with its queue", "S", name="deadline"),
    ] = 120.0
    max_chars: int = 8 << 20
    max_pending: int = 64
