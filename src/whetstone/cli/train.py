"""``whetstone train``: run a recipe, or go on with an interrupted run."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from whetstone.cli.results import print_results
from whetstone.errors import UserError
from whetstone.launch.display import Display
from whetstone.launch.preflight import check_machine, machine_faults
from whetstone.launch.recipe import Recipe, dump_recipe, load_recipe, stage_recipes
from whetstone.launch.structure import check_structure


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "train",
        description="Train a model by a recipe. Run the same command again to resume an interrupted run "
        "from its newest checkpoint.",
        epilog="example: whetstone train tiny seed=1 out=runs/tiny-1 trainer.steps=50",
    )
    parser.add_argument("recipe", help="a YAML file, or one that ships: tiny (`whetstone recipes`)")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="recipe keys to set, by dotted path"
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="HEAD:PORT",
        help="of a recipe with `flow`: place its replicas on the nodes of the Ray cluster that this machine "
        "is part of (default: the one it finds)",
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="run the recipe small, in minutes on a CPU and without a network: a tiny random model of the "
        "same architecture, two steps with planted replies, a kill and a resume, evaluations; fails unless "
        "all of it shows",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="make every check that needs no network, print the resolved recipe and stop; says what it could "
        "not check",
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    recipe = load_recipe(args.recipe, args.overrides)
    check_structure(recipe)
    if args.dry_run:
        _dry_run(recipe, elsewhere=args.ray is not None)
        return 0
    if args.smoke:
        _smoke(recipe, Console())
    else:
        # Of torchrun's processes one speaks.
        quiet = os.environ.get("RANK", "0") != "0"
        if not quiet:  # the first rank holds the folder when the others look
            check_machine(recipe, elsewhere=args.ray is not None)
        run_recipe(recipe, Console(quiet=quiet), args.recipe, ray=args.ray)
    return 0


def _dry_run(recipe: Recipe, *, elsewhere: bool) -> None:
    """Print the resolved recipe. Raises UserError with all that would stop it, one fault a line."""
    print(dump_recipe(recipe), end="")

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    faults = machine_faults(recipe, elsewhere=elsewhere)
    if not faults:
        try:
            from whetstone.launch.dry_run import slow_faults
        except ModuleNotFoundError as error:
            say(f"not checked: problems and prompts, for {error.name} is not installed here")
        else:
            faults = slow_faults(recipe, say)
    if faults:
        raise UserError("\n".join(faults))


def run_recipe(recipe: Recipe, console: Console, shown: str = "", *, ray: str | None = None) -> None:
    """Build the data where that is not done yet, train, and print what came out, stage by stage.

    shown: what the recipe is called where its roles are started on other hosts. ray: the cluster on which the
    roles of an asynchronous run are placed. Raises KeyboardInterrupt when these were told to end.
    """
    if recipe.flow is not None:
        _run_roles(recipe, console, shown, ray)
        return
    if ray is not None:
        raise UserError(
            f"--ray places roles, and recipe `{recipe.name}` has no section `flow`: its run is one process; "
            "add `flow: {staleness: 1}`"
        )
    from whetstone.launch.local import train
    from whetstone.launch.stages import check_models, runs_of
    from whetstone.launch.together import train_together

    check_models(recipe)
    for stage in stage_recipes(recipe):
        build_data(stage, console)
    with Display(console) as display:
        for stage, before in runs_of(recipe, display.say):
            if stage.verifier is None:
                summary = train(stage, display, before)
            else:
                summary = train_together(stage, display)
            print_results(display, summary.folder, summary.before, summary.after)
            display.say(f"run: {summary.folder}   page: whetstone report {summary.folder}")


def _run_roles(recipe: Recipe, console: Console, shown: str, ray: str | None) -> None:
    from whetstone.launch.dtype import check_decided, with_dtype
    from whetstone.launch.roles.here import check_here, train_here

    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(
            "a recipe with `flow` starts its own processes: run `whetstone train` without torchrun"
        )
    check_here(recipe, ray=ray)  # before the data are built, which may take hours
    if ray is not None:
        check_decided(recipe)
    build_data(recipe, console)
    with Display(console) as display:
        decided = with_dtype(recipe, display.say)
        if shown and decided.model.dtype != recipe.model.dtype:
            shown += f" model.dtype={decided.model.dtype}"  # in the command for replicas on other hosts
        evaluated = train_here(decided, display, shown, ray=ray)
        if evaluated is None:
            raise KeyboardInterrupt
        print_results(display, recipe.run_dir(), *evaluated)
        display.say(f"run: {recipe.run_dir()}   page: whetstone report {recipe.run_dir()}")


def build_data(recipe: Recipe, console: Console) -> None:
    """Run the journey of ``data.build`` where its folder is not there yet.

    Of several ranks none does: that would be each of them. They are refused with the command.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        return
    from whetstone.cli.data_build import build
    from whetstone.launch.problem_sets import built_folder, needs_build

    if recipe.data.build is not None and needs_build(recipe):
        folder = built_folder(recipe)
        console.print(f"building {folder}, once, by {recipe.data.build}", highlight=False, soft_wrap=True)
        build(recipe.data.build, to=str(folder), workers=recipe.judge.workers)


def _smoke(recipe: Recipe, console: Console) -> None:
    """Run a recipe small, in a folder that is removed unless it fails."""
    from whetstone.cli.data_build import build
    from whetstone.smoke.run import smoke

    folder = Path(tempfile.mkdtemp(prefix="whetstone-smoke-"))
    start = time.monotonic()
    try:
        said = smoke(
            recipe,
            folder,
            lambda file, overrides, to: build(file, overrides, to, workers=1),
            lambda small: run_recipe(small, console),
        )
    except UserError as error:
        raise UserError(f"{error} (kept: {folder})") from None
    shutil.rmtree(folder, ignore_errors=True)
    console.print(f"smoke: {said}; {time.monotonic() - start:.0f} s", highlight=False, soft_wrap=True)
