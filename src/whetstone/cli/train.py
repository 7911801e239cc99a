"""``whetstone train``: run a recipe, or go on with an interrupted run."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from whetstone.launch.display import Display, results_table
from whetstone.launch.recipe import dump_recipe, load_recipe


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "train",
        description="Train a model by a recipe. Run the same command again to resume an interrupted run "
        "from its newest checkpoint.",
        epilog="example: whetstone train recipes/tiny.yaml seed=1 out=runs/tiny-1 trainer.steps=50",
    )
    parser.add_argument("recipe", help="a YAML file, such as recipes/tiny.yaml")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="recipe keys to set, by dotted path"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the resolved recipe and stop")


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    recipe = load_recipe(args.recipe, args.overrides)
    if args.dry_run:
        print(dump_recipe(recipe), end="")
        return 0
    from whetstone.launch.local import train

    console = Console()
    with Display(console) as display:
        summary = train(recipe, display)
    console.print(results_table(summary.before, summary.after, {"train": "training", "heldout": "held-out"}))
    console.print(
        f"run: {summary.folder}   page: whetstone report {summary.folder}", highlight=False, soft_wrap=True
    )
    return 0
