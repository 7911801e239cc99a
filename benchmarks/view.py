"""How long whoever looks at a long run waits: ``whetstone view`` over 100,000 rollouts.

``python benchmarks/view.py RUN FOLDER`` writes a run of 1,000 steps with 100 rollouts each into FOLDER,
unless it is there, out of the rollouts and records of RUN, made different by numbers in them; then it starts
the page over it and prints the seconds of every kind of request, and the server's CPU seconds and memory.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import msgspec

from whetstone.report.metrics import MetricsWriter, read_metrics
from whetstone.report.rollouts import RolloutWriter, read_rollouts, rollout_steps

STEPS, EACH, GROUP = 1000, 100, 8


def write_long_run(source: Path, target: Path) -> None:
    """A run as long, with texts as those of ``source``."""
    rows = [row for step in rollout_steps(source) for row in read_rollouts(source, step)]
    records = [record for record in read_metrics(source / "metrics.jsonl") if record["kind"] == "train"]
    rng = random.Random(0)
    writer = RolloutWriter(target)
    (target / "recipe.yaml").write_text((source / "recipe.yaml").read_text(), encoding="utf-8")
    for step in range(1, STEPS + 1):
        groups = [rng.randrange(len(rows) // GROUP) * GROUP for _ in range(EACH // GROUP + 1)]
        chosen = [row for start in groups for row in rows[start : start + GROUP]][:EACH]
        more = "".join(f"\n# {rng.random()}" for _ in range(10))
        writer.write(
            step,
            [
                msgspec.structs.replace(
                    row, step=step, reply=row.reply + more, program=_longer(row.program, step)
                )
                for row in chosen
            ],
        )
    with MetricsWriter(target / "metrics.jsonl") as metrics:
        for step in range(1, STEPS + 1):
            metrics.write({**records[step % len(records)], "step": step})


def _longer(program: str | None, step: int) -> str | None:
    return None if program is None else f"{program}\n# {step}"


def measure(folder: Path) -> None:
    """Print the seconds of each request, of three alike each."""
    command = [sys.executable, "-m", "whetstone", "view", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip().rstrip("/")
        try:
            _requests(url, folder)
            fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{server.pid}/status").read_text()
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            cpu_s = (int(fields[11]) + int(fields[12])) / 100
            print(f"CPU {cpu_s:.1f} s, peak {int(peak.split()[1]) >> 10} MiB")
        finally:
            server.terminate()


def _requests(url: str, folder: Path) -> None:
    def ask(path: str, **query: Any) -> Any:
        with urlopen(f"{url}{path}?{urlencode(query)}") as answer:
            return json.loads(answer.read())

    def timed(label: str, path: str, *, times: int = 3, **query: Any) -> Any:
        taken: list[float] = []
        for _ in range(times):
            began = time.perf_counter()
            answer = ask(path, **query)
            taken.append(time.perf_counter() - began)
        print(f"{label}: {', '.join(f'{seconds:.3f}' for seconds in taken)} s", flush=True)
        return answer

    run = {"id": ask("/v1/list")["places"][0]["id"]}
    first = timed("open the run", "/v1/run", times=1, **run)
    assert first["count"] == STEPS * EACH
    timed("look again, nothing new", "/v1/run", **run, seen=first["stamp"])
    timed("the short columns of all rollouts", "/v1/rollouts", **run)
    timed("a rollout with its siblings", "/v1/rollouts/one", **run, step=500, row=50)
    timed("a search, first time", "/v1/rollouts/search", times=1, **run, text="0.1234")
    timed("the same search again", "/v1/rollouts/search", **run, text="0.1234")
    with MetricsWriter(folder / "metrics.jsonl") as metrics:
        metrics.write({"step": STEPS, "kind": "eval", "eval/heldout/pass@1": 0.5})
    timed("look again, a record is new", "/v1/run", times=1, **run, seen=first["stamp"])
    timed("signs of hacking, first time", "/v1/signs", times=1, **run)
    timed("signs of hacking, again", "/v1/signs", **run)


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    if not (args.folder / "metrics.jsonl").exists():
        write_long_run(args.run, args.folder)
    measure(args.folder)


if __name__ == "__main__":
    main()
