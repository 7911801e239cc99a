"""Ray reports no usage, and needs no token of this user."""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = (
    "disabled"  # of clusters in the test's own process; else this user's token counts
)
