"""``whetstone role flow``: serves the flow of a recipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from whetstone.core.http.settings import Address
from whetstone.rollout.service.app import serve_flow
from whetstone.rollout.source import PromptSource
from whetstone.run.prepared_run import preflight_models
from whetstone.run.recipe import Recipe
from whetstone.run.roles.identity import flow_rules, flow_section, run_identity
from whetstone.run.roles.role_addresses import join_commands


def serve_recipe(
    recipe: Recipe,
    address: Address,
    log: Callable[[str], None],
    *,
    display_name: str | None = None,
) -> None:
    """Serve the flow of a recipe until a signal stops it.

    display_name: the recipe's name in the printed commands for other hosts; None prints none.

    Raises UserError for a recipe without a section ``flow``, as ``preflight_models`` does, and as
    ``serve_flow`` does.
    """
    section = flow_section(recipe)
    prepared = preflight_models(recipe, log, with_evaluation=False)
    first = next(iter(prepared.values()))

    def listening(host: str, port: int) -> None:
        if display_name:
            log(join_commands(host, port, display_name, list(prepared)))

    folder = Path(section.log) if section.log else recipe.run_dir() / "flow"
    serve_flow(
        address,
        flow_rules(first.recipe),
        PromptSource([problem.id for problem in first.sets.train], recipe.seed),
        folder,
        run_identity(prepared),
        on_listening=listening,
    )
