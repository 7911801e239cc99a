"""``whetstone role flow``: the flow of a recipe, behind its port."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from whetstone.flow.service.serve import serve_flow
from whetstone.flow.source import PromptSource
from whetstone.judge_service.settings import Address
from whetstone.launch.ahead import look_at_all
from whetstone.launch.recipe import Recipe
from whetstone.launch.roles.where import what_others_run
from whetstone.launch.roles.whose import flow_section, rules_of, run_identity


def serve_recipe(
    recipe: Recipe,
    address: Address,
    log: Path | None,
    say: Callable[[str], None],
    *,
    shown: str | None = None,
) -> None:
    """Serve the flow of a recipe until told to end. ``log``: its folder, where the recipe's is not meant.

    shown: the recipe's name in the commands for other hosts, which are then said.

    Raises UserError for a recipe without a section ``flow``, for what ``look_at_all`` refuses, and as
    ``serve_flow`` does.
    """
    section = flow_section(recipe)
    aheads = look_at_all(recipe, say, evaluates=False)
    ahead = next(iter(aheads.values()))

    def listening(host: str, port: int) -> None:
        if shown:
            say(what_others_run(host, port, shown, list(aheads)))

    folder = log or (Path(section.log) if section.log else recipe.run_dir() / "flow")
    serve_flow(
        address,
        rules_of(ahead.recipe),
        PromptSource([problem.id for problem in ahead.sets.train], recipe.seed),
        folder,
        run_identity(aheads),
        stall_s=section.stall_s,
        on_listening=listening,
    )
