"""A contestant in a process of its own: ``python driver.py NAME OPTIONS_JSON``, obeying lines on stdin.

The first line is JSON, ``{workload: tasks}``; nothing is started before it has come. Every further line names
a workload: its tasks are judged, and the answer is a JSON line ``{"accepted": tasks, "wall_s": seconds}``.
The last answer is ``{"waited_s": CPU seconds of this process and its ended children}``.
Standard library only at this level: the interpreter may be a rival's.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from speed.roster import ROSTER


def main() -> None:
    """Serve until stdin closes."""
    entry, options = ROSTER[sys.argv[1]], json.loads(sys.argv[2])
    # The conversation moves away from the standard streams: what a contestant prints must not reach it, and
    # the interpreter's own stream objects stay unused, for the forks that inherit them.
    orders, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    workloads = json.loads(orders.readline())
    contestant = getattr(importlib.import_module(f"speed.{entry.module}"), entry.kind)(options)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    try:
        for line in orders:
            tasks = workloads[line.strip()]
            start = time.perf_counter()
            accepted = contestant.judge(tasks)
            print(
                json.dumps({"accepted": accepted, "wall_s": time.perf_counter() - start}),
                file=answers,
                flush=True,
            )
    finally:
        contestant.close()
    print(json.dumps({"waited_s": sum(os.times()[:4])}), file=answers, flush=True)


if __name__ == "__main__":
    main()
