"""``whetstone role``: start one role of an asynchronous run, on any host, from the same recipe."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Annotated, Literal

from msgspec import Struct, structs
from rich.console import Console

from whetstone.cli.flags import command
from whetstone.cli.results import print_results
from whetstone.core.errors import INTERRUPTED, UserError
from whetstone.core.flag import Flag
from whetstone.run.auto import check_choices_given
from whetstone.run.preflight import check_machine
from whetstone.run.recipe import Recipe, load_recipe, with_values


class _RoleFlags(Struct, frozen=True, kw_only=True):
    """A role, its recipe, and the options of the roles."""

    role: Annotated[
        Literal["flow", "rollout", "trainer"],
        Flag(
            "flow: hand out prompts, collect groups, compose batches; start it first, it prints its address. "
            "rollout: sample and judge; any number of them, on any hosts, may join and leave at any time. "
            "trainer: train from the newest checkpoint, and publish weights",
            positional=True,
        ),
    ]
    recipe: Annotated[
        str,
        Flag(
            "a YAML file with a section `flow`, or a shipped recipe: async-quickstart",
            "RECIPE",
            positional=True,
        ),
    ]
    overrides: Annotated[
        tuple[str, ...], Flag("recipe keys to set, by dotted path", "key=value", positional=True)
    ] = ()
    parent: Annotated[int | None, Flag(argparse.SUPPRESS)] = None
    host: Annotated[str | None, Flag("flow: the address to listen on (default: `flow.host`)", "ADDRESS")] = (
        None
    )
    port: Annotated[int | None, Flag("flow: the port (default: `flow.port`); 0: any free port", "N")] = None
    token_file: Annotated[str | None, Flag("flow: the tokens of clients, one per line", "FILE")] = None
    flow: Annotated[
        str | None, Flag("rollout, trainer: the flow (default: WHETSTONE_FLOW, then `flow.url`)", "URL")
    ] = None
    threads: Annotated[
        int, Flag("rollout, trainer: threads of torch, if the recipe does not set them", "N")
    ] = 0
    gpus: Annotated[str | None, Flag("rollout, trainer: the devices to use, such as 0,1", "LIST")] = None
    name: Annotated[
        str | None, Flag("rollout: its name, the same after a restart (default: a new name)", "NAME")
    ] = None
    model: Annotated[
        str | None, Flag("trainer: the model in a run of two: coder (default) or verifier", "NAME")
    ] = None
    weights_host: Annotated[
        str | None, Flag("trainer: address of the weights server (default: `flow.weights.host`)", "ADDRESS")
    ] = None
    weights_port: Annotated[int | None, Flag("trainer: its port (default: `flow.weights.port`)", "N")] = None

    def check(self) -> None:
        """Raise UserError for an option of another role."""
        for field in structs.fields(self):
            value = getattr(self, field.name)
            roles = _ROLES_OF.get(field.name)
            if roles and self.role not in roles and value != field.default:
                flag = "--" + field.name.replace("_", "-")
                raise UserError(f"{flag} is an option of role {' and '.join(roles)}; leave it out")


_ROLES_OF: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("host", "port", "token_file"), ("flow",)),
    **dict.fromkeys(("flow", "threads", "gpus"), ("rollout", "trainer")),
    "name": ("rollout",),
    **dict.fromkeys(("model", "weights_host", "weights_port"), ("trainer",)),
}


@command(
    "role",
    description="Start one role of a recipe with a section `flow`. `whetstone train` starts all roles "
    "on one machine; for several machines, start each role on its host, from the same "
    "recipe. Ctrl-C drains, and a second Ctrl-C ends. The same command resumes. All roles "
    "need the token, in the variable WHETSTONE_FLOW_TOKEN or in a file.",
    epilog="example: whetstone role rollout recipes/async-quickstart.yaml --flow http://10.0.0.1:8090",
)
def run_role(args: _RoleFlags) -> int:
    """Run a role until a signal ends it or the run is over."""
    args.check()
    from whetstone.run.signals import die_with_parent

    # Before the recipe is read: a role without its parent would block the next start of the run.
    die_with_parent(args.parent)
    recipe = load_recipe(args.recipe, args.overrides)
    check_choices_given(recipe)
    try:
        return {"flow": _flow, "rollout": _rollout, "trainer": _trainer}[args.role](args, recipe)
    except UserError as error:
        raise UserError(f"{args.role}: {error}") from None
    except asyncio.CancelledError:
        return INTERRUPTED


def _flow(args: _RoleFlags, recipe: Recipe) -> int:
    from whetstone.run.roles.flow import serve_recipe
    from whetstone.run.roles.identity import flow_section
    from whetstone.run.roles.role_addresses import listening_address

    check_machine(recipe, "flow")
    address = listening_address(flow_section(recipe), args.host, args.port, args.token_file)
    started_by_user = args.parent is None
    serve_recipe(
        recipe,
        address,
        _log,
        display_name=args.recipe if started_by_user else None,
    )
    return 0


def _rollout(args: _RoleFlags, recipe: Recipe) -> int:
    from whetstone.rollout.service.client import wait_for_flow  # imports an HTTP client
    from whetstone.run.roles.identity import flow_section
    from whetstone.run.roles.role_addresses import flow_url

    url = flow_url(flow_section(recipe), "replica", args.flow)
    check_machine(recipe, "rollout")
    wait_for_flow(url, _log)
    _select_gpus(args.gpus)
    # Imported last, because it loads torch: the devices are chosen now, and the flow has answered.
    from whetstone.run.roles.rollout import run_replica, unique_name

    run_replica(recipe, url, args.name or unique_name(), _log, threads=args.threads)
    return 0


def _trainer(args: _RoleFlags, recipe: Recipe) -> int:
    from whetstone.rollout.service.client import wait_for_flow
    from whetstone.run.roles.identity import flow_section, resolve_model
    from whetstone.run.roles.role_addresses import flow_url

    address_flags = {name: getattr(args, f"weights_{name}") for name in ("host", "port")}
    address_flags = {name: value for name, value in address_flags.items() if value is not None}
    if address_flags:
        recipe = with_values(recipe, {"flow": {"weights": address_flags}})
    url = flow_url(flow_section(recipe), "trainer", args.flow)
    # The second model is not evaluated, so its host needs no benchmarks.
    models = recipe.environment.models
    first = resolve_model(models, args.model) == models[0]
    check_machine(recipe, "trainer" if first else "partner")
    wait_for_flow(url, _log)
    _select_gpus(args.gpus)
    from whetstone.run.display import Display
    from whetstone.run.roles.trainer import run_trainer
    from whetstone.run.roles.trainer_ranks import own_rank
    from whetstone.trainer.loop import RunDrained

    # Only the first rank prints.
    with Display(Console(quiet=own_rank() > 0)) as display:
        try:
            summary = run_trainer(recipe, url, display, model=args.model, threads=args.threads)
        except RunDrained:
            return INTERRUPTED
        if args.parent is None:
            print_results(display, summary.folder, summary.before, summary.after)
            display.log(f"run: {summary.folder}   page: whetstone report {summary.folder}")
    return 0


def _select_gpus(gpus: str | None) -> None:
    if gpus is not None:  # torch reads the variable when it first looks for devices
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus


def _log(text: str) -> None:
    print(text, flush=True)
