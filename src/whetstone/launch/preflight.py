"""What would stop a run on this machine, found in a moment: without a network, torch, or all the problems.

``whetstone train`` and ``whetstone role`` make these checks before anything else; ``dry_run.py`` has the
slower ones of ``--dry-run``. All faults are reported at once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from whetstone.data.dataset import check_set
from whetstone.engine.factory import check_own_engine
from whetstone.engine.settings import SERVERS
from whetstone.engine.sources import check_folder as check_model_folder
from whetstone.errors import UserError
from whetstone.judge.environments.environment import environment_named
from whetstone.launch.lengths import check_lengths
from whetstone.launch.problem_sets import built_folder, check_built, needs_build
from whetstone.launch.recipe import Recipe, partner_recipe, stage_recipes
from whetstone.launch.roles.where import listening_address
from whetstone.launch.roles.whose import flow_section, rules_of
from whetstone.launch.run_dir import check_folder
from whetstone.report.sinks.shown import check_views
from whetstone.settings import read_settings
from whetstone.weights.settings import TOKEN_VARIABLE

_REMEDY = f"set {TOKEN_VARIABLE} on every host (`openssl rand -hex 32`), or "


def check_machine(recipe: Recipe, role: str = "train", *, elsewhere: bool = False) -> None:
    """Raise UserError with every fault, one a line, that would stop the recipe on this machine.

    role: ``train``, or the role that is started by itself. elsewhere: the roles are placed on other machines,
    which have devices, engines and packages of their own.
    """
    if faults := machine_faults(recipe, role, elsewhere=elsewhere):
        raise UserError("\n".join(faults))


def machine_faults(recipe: Recipe, role: str = "train", *, elsewhere: bool = False) -> list[str]:
    """The same faults, each with its key and the remedy."""
    checks = [
        check
        for check, (roles, of_the_place) in _CHECKS.items()
        if role in roles and not (elsewhere and of_the_place)
    ]
    found: dict[str, str] = {}
    for number, (where, each) in enumerate(recipes_within(recipe)):
        for check in checks:
            if check is check_folder and number and recipe.stages:
                continue  # a later stage begins with a model that the recipe does not name
            if fault := fault_of(partial(check, each)):
                found.setdefault(fault, where)
    return [f"{where}{fault}" for fault, where in found.items()]


def fault_of(check: Callable[[], object]) -> str:
    """The words of the UserError that a check raises; empty where it raises none."""
    try:
        check()
    except UserError as error:
        return str(error)
    return ""


def recipes_within(recipe: Recipe) -> Iterator[tuple[str, Recipe]]:
    """The recipe of each stage and of each model, and what names it in a message."""
    for number, stage in enumerate(stage_recipes(recipe)):
        yield (f"stage `{recipe.stages[number].name}`: " if recipe.stages else ""), stage
    if recipe.verifier is not None:
        yield "`verifier`: ", partner_recipe(recipe)


def _check_model(recipe: Recipe) -> None:
    model = recipe.model
    context = None if model.path is None else check_model_folder(model.path)
    check_lengths(recipe, model.scratch.max_positions if model.scratch else context)


def _check_data(recipe: Recipe) -> None:
    data, absent = recipe.data, None
    if needs_build(recipe):
        absent = built_folder(recipe)
    else:
        check_built(recipe)
    for key, name in (("data.train", data.train), ("data.heldout", data.heldout)):
        if name is not None and (absent is None or not name.startswith(str(absent))):
            _named(key, partial(check_set, name))


def _check_measured(recipe: Recipe) -> None:
    for entry in recipe.evaluation.sets:
        if entry.data is not None and entry.benchmark == "problems":
            _named(f"evaluation.sets` ({entry.title}): `data", partial(check_set, entry.data))
        elif entry.data is not None and not any(
            Path(name).exists() for name in (entry.data, entry.data.rpartition(":")[0]) if name
        ):
            raise UserError(f"`evaluation.sets` ({entry.title}): {entry.data}: no such file or folder")


def _named(key: str, check: Callable[[], object]) -> None:
    if fault := fault_of(check):
        raise UserError(f"`{key}`: {fault}")


def _check_engine(recipe: Recipe) -> None:
    engine = recipe.engine
    check_own_engine(engine)
    if engine.kind not in SERVERS:
        return
    if recipe.deterministic:
        raise UserError(
            f"engine `{engine.kind}` does not give the same replies for the same seed, so the run cannot be "
            "`deterministic: true`; set it to false, or take `engine.kind: torch`"
        )
    from whetstone.engine.served.settings import ServedOptions  # needs an HTTP client

    options = read_settings(ServedOptions, engine.options, name=lambda key: f"`engine.options.{key}`")
    if options.root() is None:
        options.interpreter(engine.kind)


def _check_device(recipe: Recipe) -> None:
    device, offload = recipe.model.device, recipe.trainer.offload
    if not offload and device in ("auto", "cpu"):
        return
    from whetstone.engine.device import pick_device  # loads torch, which knows the devices
    from whetstone.trainer.memory import check_offload

    try:
        chosen = pick_device(device)
    except UserError as error:
        raise UserError(f"`model.device`: {error}") from None
    if offload:
        check_offload(chosen)


def _check_packages(recipe: Recipe) -> None:
    check_views(recipe.report)
    if recipe.trainer.lora is not None and find_spec("peft") is None:
        raise UserError("`trainer.lora` needs a library that is not here: pip install 'whetstone-rl[lora]'")


def _check_judge(recipe: Recipe) -> None:
    if recipe.judge.environment and not recipe.judge.url:
        _named("judge.environment", partial(environment_named, recipe.judge.environment))


def _check_flow(recipe: Recipe) -> None:
    if recipe.flow is None:
        return
    rules_of(recipe).check()
    section = flow_section(recipe)
    address = listening_address(section, None, None, None)
    address.check("the flow would serve", f"{_REMEDY}flow.host=127.0.0.1")
    _check_port("for roles", section.host, section.port, "`flow.port`")


def _check_weights(recipe: Recipe) -> None:
    """The address of the trainer's weights. Ranks after the first have ports of their own."""
    if recipe.flow is None or recipe.flow.weights.by != "tcp" or os.environ.get("RANK", "0") != "0":
        return
    section, weights = recipe.flow, recipe.flow.weights
    address = listening_address(section, weights.host, weights.port, None)
    address.check("weights would be given to", f"{_REMEDY}flow.weights.host=127.0.0.1")
    _check_port("for replicas", weights.host, weights.port, "`flow.weights.port`, or --weights-port")


def _check_port(whom: str, host: str, port: int, setting: str) -> None:
    """A port that is given can be had; a host that is not an address of this machine cannot."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(
            f"{host}:{port}: cannot listen {whom}: {why}; name another port ({setting}) or host"
        ) from None


_CHECKS: dict[Callable[[Recipe], None], tuple[set[str], bool]] = {
    check_folder: ({"train"}, False),
    _check_model: ({"train", "flow", "rollout", "trainer"}, True),
    _check_data: ({"train", "flow", "rollout", "trainer"}, False),
    _check_engine: ({"train", "rollout"}, True),
    _check_device: ({"train"}, True),
    _check_packages: ({"train", "trainer"}, True),
    _check_judge: ({"train", "rollout", "trainer"}, True),
    _check_measured: ({"train", "trainer"}, False),
    _check_flow: ({"train"}, True),
    _check_weights: ({"train", "trainer"}, True),
}
"""Each check, the roles that it is for, and whether it is of the place where the roles run."""
