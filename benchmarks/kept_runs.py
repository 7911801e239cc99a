"""Training runs below one folder: one that is whole is not made again, and their CPU time is kept."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from before_after import evaluations
from whetstone.evaluate.results import Evaluation


class KeptRuns:
    """Runs below ``work``. No run begins once the CPU time of all of them is above ``cpu_hours``."""

    def __init__(self, work: Path, cpu_hours: float) -> None:
        self.work, self.limit_s = work, cpu_hours * 3600
        self._ledger = work / "cpu.json"
        work.mkdir(parents=True, exist_ok=True)

    def start_model(self, recipe: Path, seed: int) -> Path | None:
        """The model after the supervised warm-up of a recipe; None when there is no CPU time left for it."""
        kept = self.work / f"start-{seed}"
        if not kept.exists():
            out = self.work / f"warm-{seed}"
            quick = ["trainer.steps=1", "trainer.prompts_per_step=1", "evaluation.n=1", "evaluation.k=[1]"]
            if not self.train(out, recipe, [f"seed={seed}", "model.threads=1", *quick, "evaluation.every=0"]):
                return None
            shutil.copytree(out / "checkpoints" / "step-0", kept)
        return kept

    def train(self, out: Path, recipe: Path, overrides: list[str]) -> bool:
        """Train to the end, from the newest checkpoint; False when there is no CPU time left."""
        if self.spent_s() > self.limit_s:
            return False
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "whetstone", "train", str(recipe), *overrides, f"out={out}"]
        with (self.work / f"{out.name}.log").open("ab") as log:
            code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        spent = self._spent()
        spent[out.name] = spent.get(out.name, 0.0) + taken
        self._ledger.write_text(json.dumps(spent, indent=1))
        if code:
            raise SystemExit(f"{out.name} failed; see {log.name}")
        return True

    def spent_s(self) -> float:
        """CPU seconds of all runs so far."""
        return sum(self._spent().values())

    def _spent(self) -> dict[str, float]:
        return json.loads(self._ledger.read_text()) if self._ledger.exists() else {}


def heldout(out: Path, steps: int) -> tuple[Evaluation, Evaluation] | None:
    """The held-out evaluations before and after a run of ``steps`` steps; None for one that is not whole."""
    if not (out / "evaluations" / f"step-{steps}-heldout" / "evaluation.json").exists():
        return None
    return evaluations(out, "heldout")
