"""RL against training without RL on the same problems, at equal numbers of generated tokens.

    .venv/bin/python benchmarks/control_arms.py WORK           # all that is missing, then the tables
    .venv/bin/python benchmarks/control_arms.py WORK --table   # only the tables of what is there
    .venv/bin/python benchmarks/control_arms.py WORK --recipe tiny --steps 10 --rates 3e-4   # a rehearsal

The arms are the recipe itself (RL), simple self-distillation (SSD) and fine-tuning on accepted replies; the
last two have the algorithm and the sampling of `recipes/quickstart-ssd.yaml` and
`recipes/quickstart-rejection-sft.yaml`. Both sample with the starting weights, so four steps show how many
tokens a step takes, and the number of steps is the one that comes closest to the tokens of RL with the same
seed. Their learning rate is the best of --rates on a seed that is not reported; RL has that of its recipe.

Each run is a folder of WORK, and one that is whole is not made again, so it may be stopped and started. It
begins no run once the CPU time of all of them is above --cpu-hours. The weights of a whole run are removed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kept_runs import KeptRuns, heldout
from whetstone.core.shipped_recipes import recipe_file
from whetstone.evaluate.passk import PairedDifference, paired_difference
from whetstone.evaluate.results import Evaluation
from whetstone.report.metrics import read_metrics
from whetstone.run.recipe import load_recipe

RL = "rl"
ARMS = {RL: "", "ssd": "quickstart-ssd", "rejection_sft": "quickstart-rejection-sft"}
TUNING_SEED = 100
PROBE_STEPS = 4
PASS_1 = "pass@1"


def arm_settings(arm: str) -> list[str]:
    """The overrides that turn the recipe of RL into a control arm: its algorithm and its sampling."""
    if arm == RL:
        return []
    sections: dict[str, dict[str, Any]] = yaml.safe_load(recipe_file(ARMS[arm]).read_text(encoding="utf-8"))
    drawn = [f"sampling.{key}={value}" for key, value in sections.get("sampling", {}).items()]
    return [f"algorithm={json.dumps(sections['algorithm'])}", *drawn]


class Bench(KeptRuns):
    """The runs of all arms on one recipe."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options.work.resolve(), options.cpu_hours)
        self.recipe = recipe_file(options.recipe)
        self.given: list[str] = options.set
        plain = load_recipe(self.recipe, self.given)
        self.scratch = plain.model.scratch is not None
        self.dtype = plain.model.dtype
        self.steps: int = options.steps or plain.trainer.steps
        self.rates: list[float] = options.rates
        self.rl_rate = plain.trainer.lr

    def run(self, arm: str, seed: int, rate: float, steps: int) -> Path | None:
        """A whole run of an arm; None when there is no CPU time left for it."""
        out = self.work / f"{arm}-{rate:g}-{seed}"
        if heldout(out, steps) is not None:
            return out
        length = [f"trainer.steps={steps}", f"trainer.checkpoint_every={steps}", "evaluation.every=0"]
        return out if self._train(out, arm, seed, [f"trainer.lr={rate}", *length]) else None

    def equal_steps(self, arm: str, seed: int, tokens: int) -> int | None:
        """The number of steps after which an arm has generated about as many tokens as ``tokens``."""
        out = self.work / f"probe-{arm}-{seed}"
        if len(trained(out)) < PROBE_STEPS:
            nothing = ["data.heldout=null", "evaluation.train_problems=0", f"trainer.steps={PROBE_STEPS}"]
            if not self._train(out, arm, seed, nothing):
                return None
        per_step = total(out, "length/total") / PROBE_STEPS
        return max(1, round(tokens / per_step))

    def rate(self, arm: str) -> float | None:
        """The learning rate whose run on the tuning seed ended best; None while one is missing."""
        if arm == RL:
            return self.rl_rate
        if len(self.rates) == 1:
            return self.rates[0]
        ended: dict[float, float] = {}
        for rate in self.rates:
            out = self.run(arm, TUNING_SEED, rate, self.steps)
            found = out and heldout(out, self.steps)
            if not found:
                return None
            ended[rate] = statistics.fmean(found[1].values(PASS_1).values())
        return max(ended, key=lambda rate: ended[rate])

    def seed(self, seed: int) -> None:
        """Make the runs of all arms with one seed, as far as the CPU time allows."""
        rl = self.run(RL, seed, self.rl_rate, self.steps)
        for arm in ARMS:
            if rl is None or arm == RL:
                continue
            steps = self.equal_steps(arm, seed, total(rl, "length/total"))
            rate = self.rate(arm)
            if steps is not None and rate is not None:
                self.run(arm, seed, rate, steps)

    def _train(self, out: Path, arm: str, seed: int, overrides: list[str]) -> bool:
        start: list[str] = []
        if self.scratch:
            # One warm-up for all arms of a seed.
            model = self.start_model(self.recipe, seed)
            if model is None:
                return False
            start = ["warmup=null", f"model={{path: {model}, dtype: {self.dtype}, threads: 1}}"]
        settings = [*start, *self.given, *arm_settings(arm), *overrides]
        if not self.train(out, self.recipe, [f"seed={seed}", *settings]):
            return False
        for weights in ("checkpoints", "start"):
            shutil.rmtree(out / weights, ignore_errors=True)
        return True


def trained(out: Path) -> list[dict[str, Any]]:
    """The records of the steps of a run; none if there is none."""
    file = out / "metrics.jsonl"
    return [r for r in read_metrics(file) if r["kind"] == "train"] if file.exists() else []


def total(out: Path, key: str) -> int:
    """The sum of a metric over the steps of a run."""
    return round(sum(record.get(key, 0) for record in trained(out)))


class Found:
    """The whole runs of one arm, and the held-out evaluations of each, by seed."""

    def __init__(self, bench: Bench, arm: str, rate: float | None, seeds: list[int]) -> None:
        self.arm, self.rate = arm, rate
        self.folders: dict[int, Path] = {}
        self.evaluations: dict[int, tuple[Evaluation, Evaluation]] = {}
        for seed in seeds if rate is not None else []:
            out = bench.work / f"{arm}-{rate:g}-{seed}"
            found = heldout(out, len(trained(out)))
            if found is not None:
                self.folders[seed], self.evaluations[seed] = out, found

    def pooled(self, after: bool) -> dict[str, float]:
        """For each problem the mean of pass@1 over the seeds, before or after training."""
        return means([pair[after].values(PASS_1) for pair in self.evaluations.values()])


def means(values: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each problem that all of ``values`` have."""
    common = set.intersection(*(set(one) for one in values)) if values else set[str]()
    return {problem: statistics.fmean(one[problem] for one in values) for problem in sorted(common)}


def tables(bench: Bench, seeds: list[int], rates: Mapping[str, float | None]) -> None:
    """Print a row for each run, and the arms of all seeds together against RL."""
    arms = {arm: Found(bench, arm, rate, seeds) for arm, rate in rates.items()}
    print("| arm | lr | seed | steps | generated tokens | trained tokens | held-out pass@1 | change |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for found in arms.values():
        for seed, out in found.folders.items():
            before, after = (one.values(PASS_1) for one in found.evaluations[seed])
            change = paired_difference(before, after)
            tokens = f"{total(out, 'length/total'):,} | {total(out, 'loss/tokens'):,}"
            figures = f"{change.a:.3f} to {change.b:.3f} | {bounds(change)}"
            print(f"| `{found.arm}` | {found.rate:g} | {seed} | {len(trained(out))} | {tokens} | {figures} |")
    whole = {arm: found for arm, found in arms.items() if set(found.folders) == set(seeds)}
    print("\n| arm, all seeds | before | after | change | less RL | generated tokens to RL's |")
    print("| --- | --- | --- | --- | --- | --- |")
    for arm, found in whole.items():
        before, after = found.pooled(False), found.pooled(True)
        change = paired_difference(before, after)
        row = [f"`{arm}`", f"{change.a:.3f}", f"{change.b:.3f}", bounds(change)]
        if RL in whole:
            mine, theirs = (
                sum(total(out, "length/total") for out in each.folders.values())
                for each in (found, whole[RL])
            )
            against = paired_difference(whole[RL].pooled(True), after)
            row += ["" if arm == RL else bounds(against), f"{mine / theirs:.3f}"]
        print(f"| {' | '.join(row)} |")
    print(f"\n{bench.spent_s():.0f} CPU seconds in all")


def bounds(found: PairedDifference) -> str:
    """A difference with its 95% interval."""
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def main() -> None:
    """Make what is missing, seed by seed, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--recipe", default="quickstart", help="of RL: a shipped recipe or a file")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rates", nargs="+", type=float, default=[2e-5, 5e-5, 1e-4], help="of the controls")
    parser.add_argument("--steps", type=int, default=0, help="of RL (default: those of the recipe)")
    parser.add_argument("--set", nargs="+", default=[], help="overrides of the recipe, for all arms")
    parser.add_argument("--cpu-hours", type=float, default=12.0)
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    bench = Bench(options)
    for seed in [] if options.table else options.seeds:
        bench.seed(seed)
    # What the tables lack is not made.
    bench.limit_s = -1.0
    tables(bench, options.seeds, {arm: bench.rate(arm) for arm in ARMS})


if __name__ == "__main__":
    main()
