"""``whetstone train``: run a recipe, or resume an interrupted run."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

from msgspec import Struct
from rich.console import Console

from whetstone.cli.flags import command
from whetstone.cli.results import print_results
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.run.display import Display
from whetstone.run.preflight import check_machine, machine_errors
from whetstone.run.recipe import Recipe, dump_recipe, load_recipe, stage_recipes
from whetstone.run.start_record import COMMAND_VARIABLE


class _Training(Struct, frozen=True, kw_only=True):
    """A recipe, and what is done with it."""

    recipe: Annotated[
        str,
        Flag("a YAML file, or a shipped recipe: tiny (`whetstone recipes` lists them)", positional=True),
    ]
    overrides: Annotated[
        tuple[str, ...], Flag("recipe keys to set, by dotted path", "key=value", positional=True)
    ] = ()
    ray: Annotated[
        str | None,
        Flag(
            "for a recipe with `flow`: place its replicas on the nodes of the Ray cluster of this machine "
            "(default: the cluster found here)",
            "HEAD:PORT",
            bare="auto",
        ),
    ] = None
    smoke: Annotated[
        bool,
        Flag(
            "run a small version of the recipe, in minutes on a CPU and without a network: a tiny random "
            "model of the same architecture, two steps with planted replies, a kill and a resume, and "
            "evaluations; it fails unless all of them happened"
        ),
    ] = False
    dry_run: Annotated[
        bool,
        Flag(
            "make every check that needs no network, print the resolved recipe and the memory of each "
            "device, and list the checks that were not possible"
        ),
    ] = False


@command(
    "train",
    description="Train a model with a recipe. The same command resumes an interrupted run from its "
    "newest checkpoint.",
    epilog="example: whetstone train tiny seed=1 out=runs/tiny-1 trainer.steps=50",
)
def train_recipe(args: _Training) -> int:
    """Run the verb."""
    recipe = load_recipe(args.recipe, args.overrides)
    # The roles that a command starts record this command, not their own.
    os.environ.setdefault(COMMAND_VARIABLE, shlex.join(["whetstone", *sys.argv[1:]]))
    if args.dry_run:
        _dry_run(recipe, remote=args.ray is not None)
        return 0
    if args.smoke:
        check_machine(recipe, "smoke")
        _smoke(recipe, Console())
    else:
        # Only the first process of torchrun prints.
        quiet = os.environ.get("RANK", "0") != "0"
        if not quiet:  # the first rank already holds the lock of the folder when the others check it
            check_machine(recipe, remote=args.ray is not None)
        run_recipe(recipe, Console(quiet=quiet), args.recipe, ray=args.ray)
    return 0


def _dry_run(recipe: Recipe, *, remote: bool) -> None:
    """Print the resolved recipe. Raises UserError with everything that would stop the run, one error per
    line."""
    print(dump_recipe(recipe), end="")

    def log(text: str) -> None:
        print(text, file=sys.stderr)

    errors = machine_errors(recipe, remote=remote)
    try:
        from whetstone.run.memory_plan import memory_errors
        from whetstone.run.prepared_run import dry_run_errors
    except ModuleNotFoundError as error:
        log(f"not checked: memory, problems and prompts, because {error.name} is not installed here")
    else:
        # A recipe for another machine is planned although something is missing here.
        found = memory_errors(recipe, log)
        errors += [error for error in found if not any(error in other for other in errors)]
        errors = errors or dry_run_errors(recipe, log)
    if errors:
        raise UserError("\n".join(errors))
    if recipe.flow is not None and (recipe.run_dir() / "recipe.yaml").exists():
        from whetstone.run.roles.status import pace_lines

        for line in pace_lines(recipe.run_dir()):
            log(line)


def run_recipe(recipe: Recipe, console: Console, shown: str = "", *, ray: str | None = None) -> None:
    """Build missing data, train, and print the results of each stage.

    shown: the name of the recipe in commands for other hosts. ray: the cluster on which the roles of an
    asynchronous run are placed. Raises KeyboardInterrupt if the run was told to end.
    """
    if recipe.flow is not None:
        _run_roles(recipe, console, shown, ray)
        return
    if ray is not None:
        raise UserError(
            f"--ray places roles, but recipe `{recipe.name}` has no section `flow`, so its run is one "
            "process; add `flow: {staleness: 1}`"
        )
    # Imported here so that invalid options are reported before torch is loaded.
    from whetstone.run.local import train
    from whetstone.run.stages import check_models, remaining_runs
    from whetstone.trainer.loop import RunDrained

    check_models(recipe)
    for stage in stage_recipes(recipe):
        build_data(stage, console)
    with Display(console) as display:
        for stage in remaining_runs(recipe, display.log):
            try:
                summary = train(stage, display)
            except RunDrained:
                raise KeyboardInterrupt from None
            print_results(display, summary.folder, summary.before, summary.after)
            display.log(f"run: {summary.folder}   page: whetstone report {summary.folder}")


def _run_roles(recipe: Recipe, console: Console, shown: str, ray: str | None) -> None:
    from whetstone.run.auto import check_choices_given, chosen_overrides, with_choices
    from whetstone.run.roles.single_host import train_async

    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(
            "a recipe with `flow` starts its own processes: run `whetstone train` without torchrun"
        )
    if ray is not None:
        check_choices_given(recipe)
    build_data(recipe, console)
    with Display(console) as display:
        decided = with_choices(recipe, display.log)
        if shown:
            # For the command that starts replicas on other hosts.
            shown += chosen_overrides(recipe, decided)
        evaluated = train_async(decided, display, shown, ray=ray)
        if evaluated is None:
            raise KeyboardInterrupt
        print_results(display, recipe.run_dir(), *evaluated)
        display.log(f"run: {recipe.run_dir()}   page: whetstone report {recipe.run_dir()}")


def build_data(recipe: Recipe, console: Console) -> None:
    """Run the pipeline of ``data.build`` if its folder does not exist yet. With several ranks it does
    nothing: every rank would build. They fail later with the command."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        return
    from whetstone.cli.data_build import build
    from whetstone.run.problem_sets import built_folder, needs_build

    if recipe.data.build is not None and needs_build(recipe):
        folder = built_folder(recipe)
        console.print(f"building {folder} with {recipe.data.build}, once", highlight=False, soft_wrap=True)
        build(recipe.data.build, to=str(folder), workers=recipe.judge.workers)


def _smoke(recipe: Recipe, console: Console) -> None:
    """Make a smoke run of a recipe, in a folder that is kept only if it fails."""
    from whetstone.cli.data_build import build
    from whetstone.testing.smoke.run import run_smoke

    # Not a `TemporaryDirectory`: after a failure the folder has the logs that explain it.
    folder = Path(tempfile.mkdtemp(prefix="whetstone-smoke-"))
    start = time.monotonic()
    try:
        proofs = run_smoke(
            recipe,
            folder,
            lambda file, overrides, to: build(file, overrides, to, workers=1),
            lambda small: run_recipe(small, console),
        )
    except UserError as error:
        raise UserError(f"{error} (kept: {folder})") from None
    shutil.rmtree(folder, ignore_errors=True)
    console.print(f"smoke: {proofs}; {time.monotonic() - start:.0f} s", highlight=False, soft_wrap=True)
