"""``whetstone role``: one role of an asynchronous run, on any host, by the same recipe."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from rich.console import Console

from whetstone.cli.options import add_recipe_options
from whetstone.cli.results import print_results
from whetstone.errors import INTERRUPTED, UserError
from whetstone.evaluate.settings import EvaluationSection
from whetstone.launch.dtype import check_decided
from whetstone.launch.preflight import check_machine
from whetstone.launch.recipe import Recipe, load_recipe, with_values
from whetstone.launch.structure import check_structure


def add_parser(subparsers: Any) -> None:
    """Declare the verb and its roles."""
    parser = subparsers.add_parser(
        "role",
        description="Start one role of a recipe with a section `flow`. `whetstone train` starts all of them "
        "on one machine; over several, start each where it belongs, from the same recipe. Ctrl-C drains, "
        "a second one ends; the same command again goes on.",
        epilog="example: whetstone role rollout recipes/async-quickstart.yaml --flow http://10.0.0.1:8090",
    )
    roles = parser.add_subparsers(dest="role", metavar="ROLE", required=True)
    flow = roles.add_parser(
        "flow",
        help="hand out prompts, take in groups, make batches",
        description="Serve the dataflow of a run. It is started first, and says its address. A token is in "
        "WHETSTONE_FLOW_TOKEN, which replicas and trainer need as well, or in a file.",
    )
    add_recipe_options(flow)
    flow.add_argument("--host", metavar="ADDRESS", help="where to listen (default: `flow.host`)")
    flow.add_argument("--port", type=int, metavar="N", help="default: `flow.port`; 0 takes a free one")
    flow.add_argument("--token-file", metavar="FILE", help="the tokens of those who may ask, one a line")
    flow.add_argument("--log", metavar="FOLDER", help="of its log (default: `flow.log`)")
    rollout = roles.add_parser(
        "rollout",
        help="sample and judge",
        description="Work for a flow: take prompts, sample and judge their groups, follow the trainer's "
        "weights. As many as wanted, on any hosts, which join and leave at any time.",
    )
    _add_worker_options(rollout)
    rollout.add_argument("--name", help="under which it comes back (default: a new one)")
    rollout.add_argument("--room", type=int, metavar="N", help="prompts at once (default: `flow.room`)")
    trainer = roles.add_parser(
        "trainer",
        help="learn, and publish weights",
        description="Train on the batches of a flow, from the newest checkpoint of the run's folder on.",
    )
    _add_worker_options(trainer)
    trainer.add_argument("--model", metavar="NAME", help="of a run of two: coder (default) or verifier")
    trainer.add_argument("--weights-host", metavar="ADDRESS", help="default: `flow.weights.host`")
    trainer.add_argument("--weights-port", type=int, metavar="N", help="default: `flow.weights.port`")
    trainer.add_argument(
        "--weights-address", metavar="HOST:PORT", help="as replicas reach it (default: found out)"
    )


def _add_worker_options(parser: Any) -> None:
    add_recipe_options(parser)
    parser.add_argument("--flow", metavar="URL", help="default: WHETSTONE_FLOW, then `flow.url`")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="of torch, if the recipe says none"
    )
    parser.add_argument("--gpus", metavar="LIST", help="which devices it sees, such as 0,1")


def run(args: argparse.Namespace) -> int:
    """Run a role until it is told to end, or the run is over."""
    from whetstone.launch.roles.ends import live_with

    live_with(args.parent)
    recipe = load_recipe(args.recipe, args.overrides)
    check_structure(recipe)
    check_decided(recipe)
    try:
        return {"flow": _flow, "rollout": _rollout, "trainer": _trainer}[args.role](args, recipe)
    except UserError as error:
        raise UserError(f"{args.role}: {error}") from None
    except asyncio.CancelledError:
        return INTERRUPTED


def _flow(args: argparse.Namespace, recipe: Recipe) -> int:
    from whetstone.launch.roles.flow import serve_recipe
    from whetstone.launch.roles.where import listening_address
    from whetstone.launch.roles.whose import flow_section

    check_machine(recipe, "flow")
    address = listening_address(flow_section(recipe), args.host, args.port, args.token_file)
    alone = args.parent is None
    serve_recipe(
        recipe, address, Path(args.log) if args.log else None, _say, shown=args.recipe if alone else None
    )
    return 0


def _rollout(args: argparse.Namespace, recipe: Recipe) -> int:
    from whetstone.launch.roles.meeting import meet_flow  # needs an HTTP client
    from whetstone.launch.roles.where import flow_url
    from whetstone.launch.roles.whose import flow_section

    recipe = _with_flow(recipe, {} if args.room is None else {"room": args.room})
    url = flow_url(flow_section(recipe), "replica", args.flow)
    check_machine(recipe, "rollout")
    meet_flow(url, _say)
    _see_gpus(args.gpus)
    from whetstone.launch.roles.rollout import own_name, sample_for

    sample_for(recipe, url, args.name or own_name(), _say, threads=args.threads)
    return 0


def _trainer(args: argparse.Namespace, recipe: Recipe) -> int:
    from whetstone.launch.roles.meeting import meet_flow
    from whetstone.launch.roles.where import flow_url
    from whetstone.launch.roles.whose import flow_section, model_named

    given = {name: getattr(args, f"weights_{name}") for name in ("host", "port", "address")}
    given = {name: value for name, value in given.items() if value is not None}
    recipe = _with_flow(recipe, {"weights": given} if given else {})
    url = flow_url(flow_section(recipe), "trainer", args.flow)
    # A second model is not evaluated, and needs no benchmarks on its host.
    models = recipe.workflow.models
    first = model_named(models, args.model) == models[0]
    measured = recipe if first else recipe.model_copy(update={"evaluation": EvaluationSection()})
    check_machine(measured, "trainer")
    meet_flow(url, _say)
    _see_gpus(args.gpus)
    from whetstone.launch.display import Display
    from whetstone.launch.roles.siblings import own_rank
    from whetstone.launch.roles.trainer import train_for
    from whetstone.trainer.loop import Drained

    # Of several ranks one speaks.
    with Display(Console(quiet=own_rank() > 0)) as display:
        try:
            summary = train_for(recipe, url, display, model=args.model, threads=args.threads)
        except Drained:
            display.say(f"{recipe.run_dir()}: drained; the same command goes on")
            return INTERRUPTED
        if args.parent is None:
            print_results(display, summary.folder, summary.before, summary.after)
            display.say(f"run: {summary.folder}   page: whetstone report {summary.folder}")
    return 0


def _with_flow(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """The recipe with what flags say of its section ``flow``, checked like the rest."""
    if not values:
        return recipe
    return with_values(recipe, {"flow": values})


def _see_gpus(gpus: str | None) -> None:
    if gpus is not None:  # torch reads it when it first looks for devices
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus


def _say(text: str) -> None:
    print(text, flush=True)
