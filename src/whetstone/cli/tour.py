"""``whetstone tour``: show the judge and a small training run in two minutes.

Its programs for one small problem are a correct one, a wrong one and some that cheat.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct
from rich.console import Console

from whetstone.cli.flags import command
from whetstone.cli.results import print_results
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.problem import Program
from whetstone.core.run_lock import is_locked
from whetstone.core.shipped_recipes import shipped_folder
from whetstone.core.toml_files import read_toml
from whetstone.judge import Judge, Judgement
from whetstone.report.metrics import read_metrics
from whetstone.run.display import Display
from whetstone.run.recipe import load_recipe


class Candidate(Struct, frozen=True):
    """A program for the problem. ``layer`` names the layer that stops it, if it cheats."""

    title: str
    source: str
    layer: str = ""
    layer_without_namespaces: str = ""
    """The layer that stops it at the tier ``restricted``, if it is another one."""

    def stopped_by(self, isolation: str) -> str:
        """Return the layer that stops it at an isolation tier."""
        return (isolation == "restricted" and self.layer_without_namespaces) or self.layer


class _TourFile(Struct, frozen=True):
    statement: str
    tests: dict[str, Any]
    programs: list[Candidate]


_TOUR = read_toml("whetstone.cli.assets", "tour.toml", _TourFile)
STATEMENT = _TOUR.statement
PROBLEM = {"id": "tour/largest-gap", "statement": STATEMENT, "tests": _TOUR.tests}
CORRECT, WRONG, *CHEATS = _TOUR.programs


class JudgedProgram(Struct, frozen=True):
    """A program and its judgement."""

    candidate: Candidate
    judgement: Judgement

    @property
    def as_expected(self) -> bool:
        """Whether the correct program was accepted, or any other program rejected with a verdict."""
        if self.candidate is CORRECT:
            return self.judgement.accepted
        return self.judgement.score is not None and not self.judgement.accepted

    @property
    def reason(self) -> str:
        """The reason of the first case that was not accepted, in one line."""
        failed = (case for case in self.judgement.cases if case.reason)
        found = next(failed, None)
        return " ".join((found.reason if found else self.judgement.reason).split())


def judge_programs() -> Iterator[JudgedProgram]:
    """Judge every program and yield the results. Raises SandboxUnavailable."""
    with Judge(1) as judge:
        pairs = ((PROBLEM, Program("python", candidate.source)) for candidate in _TOUR.programs)
        for candidate, judgement in zip(_TOUR.programs, judge.judge_many(pairs), strict=True):
            yield JudgedProgram(candidate, judgement)


_INDENT = "    "
_RECIPE = "tour.yaml"


class _Touring(Struct, frozen=True, kw_only=True):
    """The parts of the tour, and its folder."""

    overrides: Annotated[
        tuple[str, ...],
        Flag("keys of the recipe `tour` to set, by dotted path", "key=value", positional=True),
    ] = ()
    out: Annotated[
        str, Flag("the folder of the run; only the folder of an earlier tour is replaced", "DIR")
    ] = "runs/tour"
    judge_only: Annotated[bool, Flag("skip the training")] = False


@command(
    "tour",
    description="Judge a correct, a wrong and some cheating programs, and name the layer that stops each "
    "cheat. Then train a model of two million parameters from scratch until its reward has risen, and "
    "write the report. It takes about two minutes on two cores. Each tour starts from the beginning.",
    epilog="example: whetstone tour --out runs/tour-1 seed=1",
)
def show_tour(args: _Touring) -> int:
    """Run the verb. Raises UserError if the judge does not work correctly on this machine."""
    folder, console = Path(args.out), Console(highlight=False)
    recipe = load_recipe(shipped_folder() / _RECIPE, [*args.overrides, f"out={folder}"])
    # An unusable folder must be reported before the first part, and not between the parts.
    check_folder(folder)
    _print(console, "1. The judge\n", STATEMENT, "")
    results: list[JudgedProgram] = []
    for result in judge_programs():
        _show(console, result)
        results.append(result)
    _print(console, f"All of this ran at isolation tier `{results[0].judgement.isolation}`.", "")
    if not all(result.as_expected for result in results):
        raise UserError("a verdict is not as expected; `whetstone doctor --attack` shows what works here")
    if args.judge_only:
        return 0
    from whetstone.report.page import write_page
    from whetstone.run.local import train

    _print(
        console,
        "2. Training\n",
        "A model from scratch first learns from examples; four in ten of them are wrong. Then GRPO rewards",
        "the programs that pass their tests. pass@1 is the share of programs that pass.\n",
    )
    fresh_folder(folder)
    with Display(console) as display:
        summary = train(recipe, display)
        print_results(display, summary.folder, summary.before, summary.after)
    page = write_page(folder)
    _print(
        console,
        f"\nreward of each step: {reward_curve(mean_rewards(folder))}\n",
        "3. What to do next\n",
        f"{_INDENT}{page}: the report, for any browser",
        f"{_INDENT}whetstone view {folder.parent}: the run in a browser, with every program and verdict",
        f"{_INDENT}make quickstart: RL on a real small model",
        f"{_INDENT}whetstone doctor --attack: all attacks of the suite on this machine",
    )
    return 0


def _show(console: Console, result: JudgedProgram) -> None:
    """Print a program, its verdict with the reason, and the layer that stopped it."""
    candidate, judgement = result.candidate, result.judgement
    code = [_INDENT + line if line else "" for line in candidate.source.rstrip().splitlines()]
    verdict = f"-> {judgement.verdict.value}" + (f": {result.reason}" if result.reason else "")
    layer = candidate.stopped_by(judgement.isolation)
    _print(console, candidate.title, "", *code, "", verdict)
    if layer and not judgement.accepted:
        _print(console, f"   stopped by {layer}")
    _print(console, "")


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


_BLOCKS = "▁▂▃▄▅▆▇█"
_ENDS = 5


def mean_rewards(run: Path) -> list[float]:
    """Return the mean reward of each training step that has one."""
    records = [record for record in read_metrics(run / "metrics.jsonl") if record["kind"] == "train"]
    return [record["reward/mean"] for record in records if "reward/mean" in record]


def sparkline(values: Sequence[float]) -> str:
    """Return one block for each value, scaled from 0 to the largest value."""
    top = max(values, default=0.0) or 1.0
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(last, max(0, round(value / top * last)))] for value in values)


def reward_curve(values: Sequence[float]) -> str:
    """Return the sparkline, with the means of the first and the last five steps."""
    if not values:
        return "no step had a reward"
    first, last = values[:_ENDS], values[-_ENDS:]
    early, late = (sum(some) / len(some) for some in (first, last))
    means = f"{early:.2f} in the first {len(first)} steps, {late:.2f} in the last"
    return f"{sparkline(values)}\n{_INDENT}mean: {means}"


# The file that marks the folder of a tour.
MARK = ".tour"


def check_folder(folder: Path) -> None:
    """Raise UserError for a folder that is in use or contains something else than a tour."""
    if is_locked(folder):
        raise UserError(
            f"{folder}: another process trains in this folder; wait for its end, or give another --out"
        )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise UserError(f"{folder} contains files that are not of a tour; give another --out")


def fresh_folder(folder: Path) -> None:
    """Make ``folder`` empty except for the mark. Raises UserError as ``check_folder`` does."""
    check_folder(folder)
    try:
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; give another --out") from None
