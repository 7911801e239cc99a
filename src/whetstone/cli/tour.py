"""``whetstone tour``: the judge and a small training run, in two minutes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from whetstone.cli.results import print_results
from whetstone.errors import UserError
from whetstone.launch.display import Display
from whetstone.launch.recipe import load_recipe
from whetstone.shipped_recipes import shipped_folder
from whetstone.tour.curve import curve, rewards
from whetstone.tour.folder import check_folder, fresh_folder
from whetstone.tour.programs import STATEMENT, Judged, judged

_INDENT = "    "
_RECIPE = "tour.yaml"


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "tour",
        description="Judge a correct, a wrong and some cheating programs, and say which layer stops each "
        "cheat. Then train a model of two million parameters from scratch until its reward has risen, and "
        "write the report. It takes about two minutes on two cores. Each tour starts afresh.",
        epilog="example: whetstone tour --out runs/tour-1 seed=1",
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="keys of the recipe `tour` to set, by dotted path"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="runs/tour",
        help="the run's folder (default: runs/tour). The folder of an earlier tour is replaced, no other one",
    )
    parser.add_argument("--judge-only", action="store_true", help="leave out the training")


def run(args: argparse.Namespace) -> int:
    """Run the verb. Status 1 when the judge does not hold on this machine."""
    folder, console = Path(args.out), Console(highlight=False)
    recipe = load_recipe(shipped_folder() / _RECIPE, [*args.overrides, f"out={folder}"])
    check_folder(folder)
    _say(console, "1. The judge\n", STATEMENT, "")
    results: list[Judged] = []
    for result in judged():
        _show(console, result)
        results.append(result)
    _say(console, f"All of this ran at isolation tier `{results[0].judgement.isolation}`.", "")
    if not all(result.as_meant for result in results):
        raise UserError("a verdict is not as it must be; `whetstone doctor --attack` says what holds here")
    if args.judge_only:
        return 0
    from whetstone.launch.local import train
    from whetstone.report.page import write_page

    _say(
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
    _say(
        console,
        f"\nreward of each step: {curve(rewards(folder))}\n",
        "3. What to do next\n",
        f"{_INDENT}{page}: the report, for any browser",
        f"{_INDENT}whetstone view {folder.parent}: the run in a browser, with every program and verdict",
        f"{_INDENT}make quickstart: RL on a real small model",
        f"{_INDENT}whetstone doctor --attack: all attacks of the suite on this machine",
    )
    return 0


def _show(console: Console, result: Judged) -> None:
    """A program, its verdict with the reason, and the layer that stopped it."""
    candidate, judgement = result.candidate, result.judgement
    code = [_INDENT + line if line else "" for line in candidate.source.rstrip().splitlines()]
    verdict = f"-> {judgement.verdict.value}" + (f": {result.reason}" if result.reason else "")
    layer = candidate.stopped_by(judgement.isolation)
    _say(console, candidate.title, "", *code, "", verdict)
    if layer and not judgement.accepted:
        _say(console, f"   stopped by {layer}")
    _say(console, "")


def _say(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
