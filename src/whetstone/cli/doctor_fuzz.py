"""``whetstone doctor --attack --fuzz``: hostile programs drawn at random, for as long as is asked."""

from __future__ import annotations

import json
import random

import msgspec
from rich.console import Console
from rich.text import Text

from whetstone.attacks.fuzz import fuzz
from whetstone.progress import Progress


def run_fuzz(seconds: float, seed: int | None, *, as_json: bool) -> int:
    """Run all fuzzers. Status 0 when every session held, 1 when not; what did not is named by its seed."""
    first = random.SystemRandom().getrandbits(32) if seed is None else seed
    console = Console()
    if not as_json:
        console.print(f"fuzzing for {seconds:g} s, from seed {first} on")
    with Progress() as progress, progress.work("fuzzing", counted=False):
        fuzzed = list(fuzz(seconds, first))
    held = not any(one.found for one in fuzzed)
    if as_json:
        print(
            json.dumps({"seed": first, "fuzzers": msgspec.to_builtins(fuzzed, str_keys=True), "held": held})
        )
        return 0 if held else 1
    for one in fuzzed:
        console.print(f"{one.name}: {one.sessions} sessions, {len(one.found)} did not hold")
        for found_seed, failure in one.found.items():
            console.print(Text(f"  --seed {found_seed}: {failure}", style="red"))
    return 0 if held else 1
