"""The reward-hacking drill: the same small policy trained with this judge and with six others.

    python -m benchmarks.drill WORK verl_prime_code=PYTHON livecodebench=PYTHON ...
    python -m benchmarks.drill WORK --table     # only the tables and the picture of what is there

Each argument is a module of ``whetstone_exam.graders`` and its interpreter. The runs with this judge,
with and without hacks in the vocabulary, are always made. A judge's answers for all problems and programs are
asked once, in the protected process of ``whetstone exam``, and its runs look them up; this judge judges every
reply. A finished run is not made again. Figures are kept in ``drill.json``, and the picture is ``drill.svg``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.drill.figures import Figures, picture, print_tables, run_figures
from benchmarks.drill.policy import write_policy
from benchmarks.drill.world import Form, mixed_problems, problems, right_program, vocabulary
from kept_runs import KeptRuns
from whetstone.core.problem import Problem, Program
from whetstone.data.files import write_problems
from whetstone.judge import Judge
from whetstone_exam.exam.callable_target import CallableTarget

BENCHMARKS = Path(__file__).parents[1]
FIGURES, PICTURE = BENCHMARKS / "drill.json", BENCHMARKS / "drill.svg"
OURS, CONTROL = "whetstone", "whetstone, no hacks in the vocabulary"
# The form of tests in which each grader gets the problems.
GRADER_FORMS: dict[str, Form] = {
    "verl_prime_code": "stdin",
    "livecodebench": "stdin",
    "tinker_cookbook": "stdin",
    "evalplus": "call",
    "sandbox_fusion": "assert",
    "scalebox": "stdin",
}
SEEDS = (0, 1, 2)
STEPS, PROMPTS, SAMPLES = 100, 20, 32


def main() -> None:
    """Make the runs that are missing, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("judges", nargs="*", metavar="MODULE=PYTHON")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--cpu-hours", type=float, default=3.0)
    parser.add_argument("--table", action="store_true", help="make no run")
    options = parser.parse_args()
    figures: Figures = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    if not options.table:
        drill = Drill(options.work.resolve(), options.cpu_hours, options.steps, options.samples, options.lr)
        # The environment of the runs is imported from the repository.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])
        graders = dict(judge.split("=", 1) for judge in options.judges)
        for seed in options.seeds:
            for arm in (OURS, CONTROL, *graders):
                if str(seed) not in figures.setdefault(arm, {}):
                    figures[arm][str(seed)] = drill.run(arm, seed, graders.get(arm, ""))
                    FIGURES.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    print_tables(figures)
    PICTURE.write_text(picture(figures), encoding="utf-8")


class Drill(KeptRuns):
    """Runs of the drill in a folder, with the answers of the judges."""

    def __init__(self, work: Path, cpu_hours: float, steps: int, samples: int, lr: float) -> None:
        super().__init__(work, cpu_hours)
        self._steps, self._samples, self._lr = steps, samples, lr
        self._truth: dict[str, dict[str, int | None]] = {}

    def run(self, arm: str, seed: int, python: str) -> dict[str, Any]:
        """Train one policy, and return its figures by step."""
        ours = arm in (OURS, CONTROL)
        tasks = mixed_problems() if ours else problems(GRADER_FORMS[arm])
        programs = vocabulary(hacks=arm != CONTROL)
        folder = self.work / f"{arm.split(',')[0]}{'-control' if arm == CONTROL else ''}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_policy(folder / "model", tasks, programs, seed)
        write_problems(folder / "problems.jsonl", tasks)
        recipe = self._recipe(folder, seed)
        if not ours:
            answers = self._answers(arm, python, tasks, programs)
            recipe["environment"] |= {
                "kind": "benchmarks.drill.reward.AnswersOfAnotherJudge",
                "options": {"answers": str(answers)},
            }
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
        run, before = folder / folder.name, self.spent_s()
        if not self.train(run, folder / "recipe.yaml", []):
            raise SystemExit("no CPU time is left; raise --cpu-hours")
        if not self._truth:
            self._truth = judged(problems("stdin", hidden=True), vocabulary(hacks=True))
        made = run_figures(run, self._truth)
        return {**made, "cpu_s": round(self.spent_s() - before, 1)}

    def _recipe(self, folder: Path, seed: int) -> dict[str, Any]:
        return {
            "name": "drill",
            "seed": seed,
            "model": {"path": str(folder / "model"), "dtype": "float32", "threads": 1},
            "data": {"train": str(folder / "problems.jsonl"), "heldout": None},
            "environment": {"chat": False, "prompt": "{statement}", "extraction": "whole"},
            "sampling": {"temperature": 1.0, "max_tokens": 2},
            "algorithm": {"preset": "dapo", "refill_rounds": 0, "overlong_buffer": 0},
            "trainer": {
                "steps": self._steps,
                "prompts_per_step": PROMPTS,
                "samples_per_prompt": self._samples,
                "lr": self._lr,
                "checkpoint_every": self._steps,
            },
            "evaluation": {"every": 0, "train_problems": 0},
        }

    def _answers(self, name: str, python: str, tasks: list[Problem], programs: list[str]) -> Path:
        """Return the file with a grader's answers, and ask the grader if there is none."""
        file = self.work / f"answers-{name}.json"
        if not file.exists():
            target = CallableTarget(
                f"whetstone_exam.graders.{name}:grade", python=python, workers=2, timeout_s=60
            )
            try:
                pending = {
                    (task.id, text): target.submit(task, Program("python", text))
                    for task in tasks
                    for text in programs
                }
                answers: dict[str, dict[str, int | None]] = {task.id: {} for task in tasks}
                for (task_id, text), future in pending.items():
                    accepted = future.result().accepted
                    answers[task_id][text] = None if accepted is None else int(accepted)
            finally:
                target.close()
            wrongly = [task.id for task in tasks if answers[task.id][right_program(task)] != 1]
            if wrongly:
                raise SystemExit(f"{name} does not accept the right programs of {', '.join(wrongly)}")
            file.write_text(json.dumps(answers), encoding="utf-8")
        return file


def judged(tasks: list[Problem], programs: list[str]) -> dict[str, dict[str, int | None]]:
    """Return which programs solve which problems, by this judge."""
    pairs = [(task, Program("python", text)) for task in tasks for text in programs]
    answers: dict[str, dict[str, int | None]] = {task.id: {} for task in tasks}
    with Judge() as judge:
        verdicts = [judge.submit(*pair) for pair in pairs]
        for (task, given), verdict in zip(pairs, verdicts, strict=True):
            answers[task.id][given.source] = int(verdict.result().accepted)
    return answers


if __name__ == "__main__":
    main()
