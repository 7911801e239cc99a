"""Every preset on the tiny recipe: does it learn, on three seeds, by the interval of its held-out rise?

    .venv/bin/python benchmarks/algorithms.py WORK                     # all that is missing, then the table
    .venv/bin/python benchmarks/algorithms.py WORK --presets gspo m2po # only these
    .venv/bin/python benchmarks/algorithms.py WORK --table             # only the table of what is there

One supervised warm-up a seed, whose model every preset starts from. The learning rate is the best of three on
a seed that is not among the three reported. Each run is a folder of WORK, and one that is whole is not made
again, so it may be stopped and started. It begins no run once the CPU time of all of them is above
--cpu-hours.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kept_runs import KeptRuns, heldout
from whetstone.algorithm.named import algorithm_class, preset_names
from whetstone.evaluate.passk import PairedDifference, paired_difference

RECIPE = Path(__file__).parents[1] / "recipes" / "tiny.yaml"
TUNING_SEED = 100
SEEDS = (0, 1, 2)
RATES = (1e-4, 3e-4, 1e-3)
# Control arms are no RL; benchmarks/control_arms.py compares them with it.
PRESETS = [name for name in preset_names() if not algorithm_class(name).cross_entropy]
# Two updates a step, so that clips, masks and ratios have something to do.
RUN = ["model.threads=1", "trainer.minibatches=2", "trainer.warmup_steps=5", "evaluation.train_problems=1"]
# Replies of at most 32 tokens need no penalty on length, and every preset gets the same number of prompts.
OFF = {"overlong_buffer": 0, "refill_rounds": 0}


class Bench(KeptRuns):
    """Runs of the presets."""

    def __init__(self, work: Path, steps: int, cpu_hours: float) -> None:
        super().__init__(work, cpu_hours)
        self.steps = steps

    def run(self, preset: str, seed: int, rate: float) -> Path | None:
        """A whole run of a preset; None when there is no CPU time left for it."""
        out = self.work / f"{preset}-{rate:g}-{seed}"
        if self.rise(out) is not None:
            return out
        start = self.start_model(RECIPE, seed)
        if start is None:
            return None
        settings = {key: value for key, value in OFF.items() if key in algorithm_class(preset).model_fields}
        overrides = [
            f"seed={seed}",
            "warmup=null",
            f"model={{path: {start}, dtype: float32, threads: 1}}",
            f"algorithm={json.dumps({'preset': preset, **settings})}",
            f"trainer.lr={rate}",
            f"trainer.steps={self.steps}",
            f"trainer.checkpoint_every={self.steps}",
            "evaluation.every=0",
            *RUN[1:],
        ]
        return out if self.train(out, RECIPE, overrides) else None

    def rise(self, out: Path) -> PairedDifference | None:
        """The rise of held-out pass@1 over a run, with its interval; None for one that is not whole."""
        found = heldout(out, self.steps)
        return found and paired_difference(*(one.values("pass@1") for one in found))

    def rate(self, preset: str) -> float | None:
        """The learning rate whose run on the tuning seed rose most; None while one is missing."""
        runs = {rate: self.run(preset, TUNING_SEED, rate) for rate in RATES}
        rises = {rate: self.rise(out) for rate, out in runs.items() if out is not None}
        known = {rate: rise.value for rate, rise in rises.items() if rise is not None}
        return max(known, key=lambda rate: known[rate]) if len(known) == len(RATES) else None


def table(bench: Bench) -> None:
    """One row a preset: what is there."""
    print("| preset | lr | " + " | ".join(f"seed {seed}: rise of held-out pass@1" for seed in SEEDS) + " |")
    print("| --- | --- |" + " --- |" * len(SEEDS))
    for preset in PRESETS:
        for rate in RATES:
            rises = [bench.rise(bench.work / f"{preset}-{rate:g}-{seed}") for seed in SEEDS]
            if any(rises):
                cells = [
                    "not run"
                    if r is None
                    else f"{r.a:.3f} to {r.b:.3f}, {r.value:+.3f} [{r.low:+.3f}, {r.high:+.3f}]"
                    for r in rises
                ]
                print(f"| `{preset}` | {rate:g} | " + " | ".join(cells) + " |")
    print(f"\n{bench.spent_s():.0f} CPU seconds in all")


def main() -> None:
    """Make what is missing, preset by preset, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--presets", nargs="+", default=PRESETS, choices=PRESETS)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--cpu-hours", type=float, default=3.0)
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    bench = Bench(options.work.resolve(), options.steps, options.cpu_hours)
    for preset in [] if options.table else options.presets:
        rate = bench.rate(preset)
        for seed in SEEDS:
            if rate is not None:
                bench.run(preset, seed, rate)
    table(bench)


if __name__ == "__main__":
    main()
