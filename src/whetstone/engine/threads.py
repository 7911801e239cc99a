"""Let torch's threads sleep while they wait for one another, instead of spinning.

An idle OpenMP thread by default burns its core for a while in the hope of more work. That is right
on a machine of one's own. Where judge workers or other runs want the same cores it is ruinous: the
spinning thread holds the core that the thread it waits for would need.
"""

from __future__ import annotations

import os
import sys


def sleep_while_waiting() -> bool:
    """Ask OpenMP for passive waiting, unless the environment already says how to wait.

    Call before torch is first imported, since OpenMP reads its settings when it is loaded. Returns
    whether the call came in time and nothing was set before.
    """
    if "torch" in sys.modules or "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        return False
    os.environ["OMP_WAIT_POLICY"] = "passive"
    return True
