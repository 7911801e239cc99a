"""Lets these tests drive a server as those of ``tests/judge_service`` do, and a tiny run as those of
``tests/launch``; and Ray say nothing to others."""

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / room) for room in ("judge_service", "launch")]
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = (
    "disabled"  # of clusters in the test's own process; else this user's token counts
)
