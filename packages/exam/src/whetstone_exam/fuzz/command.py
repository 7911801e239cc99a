"""``whetstone doctor --attack --fuzz SECONDS``: run the fuzzers, and print what they found."""

from __future__ import annotations

import json
import random

import msgspec
from rich.console import Console
from rich.text import Text

from whetstone.core.progress import Progress
from whetstone_exam.fuzz.fuzz import fuzz


def run_fuzz(seconds: float, seed: int | None, *, as_json: bool) -> int:
    """Run all fuzzers. Returns 0 if no session found a violation, otherwise 1. Violations are listed with
    their seeds."""
    first = random.SystemRandom().getrandbits(32) if seed is None else seed
    console = Console()
    if not as_json:
        console.print(f"fuzzing for {seconds:g} s, starting at seed {first}")
    with Progress() as progress, progress.work("fuzzing", counted=False):
        summaries = list(fuzz(seconds, first))
    held = not any(summary.found for summary in summaries)
    if as_json:
        print(
            json.dumps(
                {"seed": first, "fuzzers": msgspec.to_builtins(summaries, str_keys=True), "held": held}
            )
        )
        return 0 if held else 1
    for summary in summaries:
        console.print(f"{summary.name}: {summary.sessions} sessions, {len(summary.found)} violations")
        for found_seed, failure in summary.found.items():
            console.print(Text(f"  --seed {found_seed}: {failure}", style="red"))
    return 0 if held else 1
