"""Fast checks for what would stop a run on this machine, without a network, torch, or all problems.

``whetstone train`` and ``whetstone role`` run them first; ``prepared_run.py`` reads models and problems, also
for ``--dry-run``. All errors are reported at once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from whetstone.core.errors import UserError
from whetstone.core.optional_packages import install_command, load_grader
from whetstone.core.settings import read_settings
from whetstone.data.dataset import check_set
from whetstone.data.pipeline import load_pipeline
from whetstone.engine.factory import check_plugin_engine, no_routing
from whetstone.engine.settings import SERVERS
from whetstone.engine.sources import check_folder as check_model_folder
from whetstone.environments.settings import environment_class
from whetstone.judge.environments.environment import environment_named
from whetstone.report.sinks import check_views
from whetstone.run.problem_sets import built_folder, check_built, needs_build
from whetstone.run.recipe import Recipe, check_lengths, recipe_parts
from whetstone.run.roles.identity import flow_section
from whetstone.run.roles.role_addresses import listening_address
from whetstone.run.run_dir import check_folder
from whetstone.weights.settings import TOKEN_VARIABLE

_REMEDY = f"set {TOKEN_VARIABLE} on every host (`openssl rand -hex 32`), or "


def check_machine(recipe: Recipe, role: str = "train", *, remote: bool = False) -> None:
    """Raise UserError with every error, one per line, that would stop the recipe on this machine.

    role: ``train``, ``smoke``, or a role that is started by itself (``partner``: the trainer of the second
    model). remote: the roles run on other machines with their own devices, engines and packages.
    """
    if errors := machine_errors(recipe, role, remote=remote):
        raise UserError("\n".join(errors))


def machine_errors(recipe: Recipe, role: str = "train", *, remote: bool = False) -> list[str]:
    """Return these errors, each with its key and remedy."""
    checks = [
        check
        for check, (roles, machine_specific) in _CHECKS.items()
        if role in roles and not (remote and machine_specific)
    ]
    errors: dict[str, str] = {}
    for number, (where, each) in enumerate(recipe_parts(recipe)):
        for check in checks:
            # A later stage starts from a checkpoint, and the second model has the rules of the first.
            if number and check is (check_folder if recipe.stages else _check_structure):
                continue
            if fault := error_of(partial(check, each)):
                errors.setdefault(fault, where)
    return [f"{where}{fault}" for fault, where in errors.items()]


def error_of(check: Callable[[], object]) -> str:
    """Return the message of the UserError that a check raises; empty if it raises none."""
    try:
        check()
    except UserError as error:
        return str(error)
    return ""


def _check_structure(recipe: Recipe) -> None:
    """Check what needs no file of the run: ranks, the pipeline, and official graders."""
    evaluation = recipe.evaluation
    measures = recipe.data.heldout is not None or evaluation.train_problems or evaluation.sets
    if recipe.flow is not None and recipe.flow.ranks > 1 and measures and evaluation.process != "separate":
        raise ranks_cannot_evaluate(recipe.flow.ranks)
    if recipe.data.build is not None:
        _check_key("data.build", partial(load_pipeline, recipe.data.build))
    for planned in evaluation.planned(recipe.sampling, recipe.environment, recipe.seed):
        if planned.entry.harness == "official" and recipe.judge.url:
            raise UserError(
                f"`evaluation.sets` ({planned.entry.title}): official graders only run in the judge of "
                "this machine; remove `harness`, or `judge.url`"
            )


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
            _check_key(key, partial(check_set, name))


def _check_evaluation_sets(recipe: Recipe) -> None:
    for entry in recipe.evaluation.sets:
        if entry.harness == "official":
            _check_key(f"evaluation.sets` ({entry.title}): `harness", partial(load_grader, entry.harness))
        if entry.data is not None and entry.benchmark == "problems":
            _check_key(f"evaluation.sets` ({entry.title}): `data", partial(check_set, entry.data))
        elif entry.data is not None and not any(
            Path(name).exists() for name in (entry.data, entry.data.rpartition(":")[0]) if name
        ):
            raise UserError(f"`evaluation.sets` ({entry.title}): {entry.data}: no such file or folder")


def _check_key(key: str, check: Callable[[], object]) -> None:
    if fault := error_of(check):
        raise UserError(f"`{key}`: {fault}")


def _check_engine(recipe: Recipe) -> None:
    engine = recipe.engine
    check_plugin_engine(engine)
    if engine.kind not in SERVERS:
        return
    if recipe.deterministic:
        raise UserError(
            f"engine `{engine.kind}` does not give the same replies for the same seed, so the run cannot be "
            "`deterministic: true`; set it to false, or take `engine.kind: torch`"
        )
    if recipe.trainer.routing_replay and engine.kind != "vllm":
        raise no_routing(engine.kind)
    # This import needs an HTTP client, which is optional.
    from whetstone.engine.served.settings import ServedOptions

    options = read_settings(ServedOptions, engine.options, name=lambda key: f"`engine.options.{key}`")
    if options.root() is None:
        options.interpreter(engine.kind)


def _check_device(recipe: Recipe) -> None:
    device, offload = recipe.model.device, recipe.trainer.offload
    if not offload and device in ("auto", "cpu"):
        return
    # This imports torch, which knows the devices.
    from whetstone.engine.device import pick_device
    from whetstone.trainer.memory import check_offload

    try:
        chosen = pick_device(device)
    except UserError as error:
        raise UserError(f"`model.device`: {error}") from None
    if offload:
        check_offload(chosen)


def _check_packages(recipe: Recipe) -> None:
    check_views(recipe.report)
    for key, packages, extra in _needed_packages(recipe):
        if any(find_spec(package) is None for package in packages):
            raise UserError(f"`{key}` needs a library that is not here: {install_command(extra)}")


def _needed_packages(recipe: Recipe) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield the keys of a recipe that need packages beyond those of training, and their extra."""
    if recipe.trainer.lora is not None:
        yield "trainer.lora", ("peft",), "lora"
    if recipe.flow is not None:
        yield "flow", ("starlette", "uvicorn", "httpx2"), "serve"
    if packages := environment_class(recipe.environment.kind).packages:
        yield f"environment.kind: {recipe.environment.kind}", packages, "serve"
    if recipe.judge.url:
        yield "judge.url", ("httpx2", "aiohttp"), "serve"


def _check_judge(recipe: Recipe) -> None:
    if recipe.judge.environment and not recipe.judge.url:
        _check_key("judge.environment", partial(environment_named, recipe.judge.environment))


def _check_flow(recipe: Recipe) -> None:
    if recipe.flow is None:
        return
    section = flow_section(recipe)
    address = listening_address(section, None, None, None)
    address.check("the flow would serve", f"{_REMEDY}flow.host=127.0.0.1")
    _check_port("for roles", section.host, section.port, "`flow.port`")


def _check_weights(recipe: Recipe) -> None:
    """Check the address of the trainer's weights. Ranks after the first have their own ports."""
    if recipe.flow is None or recipe.flow.weights.by != "tcp" or os.environ.get("RANK", "0") != "0":
        return
    section, weights = recipe.flow, recipe.flow.weights
    address = listening_address(section, weights.host, weights.port, None)
    address.check("weights would be given to", f"{_REMEDY}flow.weights.host=127.0.0.1")
    _check_port("for replicas", weights.host, weights.port, "`flow.weights.port`, or --weights-port")


def _check_port(purpose: str, host: str, port: int, setting: str) -> None:
    """Raise UserError if a given port is in use, or the host is no address of this machine."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(
            f"{host}:{port}: cannot listen {purpose}: {reason}; name another port ({setting}) or host"
        ) from None


def ranks_cannot_evaluate(ranks: int) -> UserError:
    """Return the error for an evaluation inside a trainer of several ranks."""
    return UserError(
        f"`evaluation.process`: the trainer of a flow has {ranks} ranks, each with a part of the model, "
        "and cannot evaluate; set it to `separate`, or evaluate nothing (data.heldout=null, "
        "evaluation.train_problems=0, no `evaluation.sets`)"
    )


# Each check, the roles that it applies to, and whether it concerns the machine on which the roles run.
_TRAINERS = {"train", "trainer", "partner"}
_CHECKS: dict[Callable[[Recipe], None], tuple[set[str], bool]] = {
    _check_structure: ({"train", "smoke", "flow", "rollout", "trainer"}, False),
    check_folder: ({"train"}, False),
    _check_model: ({*_TRAINERS, "flow", "rollout"}, True),
    _check_data: ({*_TRAINERS, "flow", "rollout"}, False),
    _check_engine: ({"train", "rollout"}, True),
    _check_device: ({"train"}, True),
    _check_packages: (_TRAINERS, True),
    _check_judge: ({*_TRAINERS, "rollout"}, True),
    _check_evaluation_sets: ({"train", "trainer"}, False),
    _check_flow: ({"train"}, True),
    _check_weights: (_TRAINERS, True),
}
