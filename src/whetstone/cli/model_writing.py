"""A model that writes code for problems, checkers or generators: its options, and what shows it at work."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from whetstone.cli.eval_options import add_endpoint_options, endpoint_settings, option_named
from whetstone.progress import Progress, Work

if TYPE_CHECKING:
    from whetstone.evaluate.plan import Plan


class Model(NamedTuple):
    """Who writes. ``how``: all that replies depend on, for a journal of them."""

    label: str
    writer: Any
    plan: Plan
    how: dict[str, Any]


def add_writing_options(parser: argparse.ArgumentParser, group: Any, attempts: int, written: str) -> None:
    """Declare what ``model_of`` reads, besides ``--seed``. ``written``: what it writes for a problem."""
    group.add_argument("--model", help="the name that the endpoint serves, if it serves several")
    group.add_argument(
        "--attempts", type=int, default=attempts, metavar="N", help=f"{written} (default: {attempts})"
    )
    group.add_argument("--temperature", type=float, default=0.6, help="default: 0.6")
    group.add_argument("--top-p", type=float, default=0.95, help="default: 0.95")
    group.add_argument("--max-tokens", type=int, default=8192, help="longest reply (default: 8192)")
    add_endpoint_options(parser)


def model_of(args: argparse.Namespace) -> Model:
    """The model at ``--endpoint``. Raises UserError for one that answers nothing, and for wrong options."""
    from whetstone.evaluate.plan import Plan
    from whetstone.evaluate.replies.endpoint import Endpoint, Settings
    from whetstone.settings import read_settings
    from whetstone.workflow.settings import WorkflowSection

    drawn = {"n": args.attempts, "temperature": args.temperature, "top_p": args.top_p,
             "max_tokens": args.max_tokens, "seed": args.seed}  # fmt: skip
    plan = read_settings(Plan, drawn, name=option_named)
    endpoint = Endpoint(args.endpoint, args.model, Settings(**endpoint_settings(args)))
    label = str(endpoint.manifest["source"])
    how = {"model": label, "plan": plan.model_dump(mode="json", exclude={"k"})}
    return Model(label, endpoint.writer(plan, WorkflowSection(prompt="{statement}")), plan, how)


def shown_on(progress: Progress) -> tuple[Callable[[str, int, int], None], Callable[[str], None]]:
    """A function that shows how far a named work is, and one that prints a line."""
    works: dict[str, Work] = {}

    def watch(what: str, done: int, of: int) -> None:
        if what not in works:
            works[what] = progress.begin(what, of)
        works[what].update(done)
        if done >= of:
            progress.end(works[what])

    return watch, progress.say
