"""Builds the engines ``vllm`` and ``sglang`` of a recipe: a server that is started here, or one at an
address."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.settings import read_settings
from whetstone.engine.engine import ProcessGroup
from whetstone.engine.served import vllm_worker
from whetstone.engine.served.backend import ServerBackend
from whetstone.engine.served.engine import ServedEngine
from whetstone.engine.served.model_folders import FollowedFolder, ModelFolder, SharedFolder
from whetstone.engine.served.process import ServerProcess, free_port
from whetstone.engine.served.rank_servers import RankServers
from whetstone.engine.served.settings import SERVED_NAME, ServedOptions
from whetstone.engine.served.sglang import SGLang
from whetstone.engine.served.vllm import DEV_MODE, EXTENSION, RETURN_ROUTING, SUPPORTS, Vllm

# The name under which a server's workers import ``vllm_worker.py``.
_WORKER_MODULE = "whetstone_vllm_worker"
# The model is a local folder. A server that queried the hub would wait for a network.
_OFFLINE = {"HF_HUB_OFFLINE": "1"}


class _LaunchCommand(Struct, frozen=True):
    """How to start a kind of server: its package, and the arguments before those of a recipe."""

    package: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    model: str
    context: str
    tensor_parallel: str
    extended: bool = False
    """Whether its workers are extended by ``vllm_worker.py``."""
    sleeps: bool = False
    """Whether it must sleep while the trainer uses the devices; ``arguments`` then enable this."""


def vllm_engine(
    model: Callable[[], Any],
    tokenizer: Any,
    *,
    shared: bool = False,
    ranks: ProcessGroup | None = None,
    routing: bool = False,
    truncated: bool = False,
    **options: Any,
) -> ServedEngine:
    """Build the engine ``vllm`` of the table in ``factory.py``; ``options`` are those of ``ServedOptions``.

    shared: whether it sleeps while the trainer works. ranks: of a run of several, which all call this
    together; ``model`` then returns None on a rank that is not the first of its machine. routing: whether
    replies have the experts that processed them, if the request wants it. truncated: whether they need their
    supports. Raises UserError for wrong options, and for a server that does not start or cannot serve a run.
    """
    asked = read_settings(ServedOptions, options, where="engine.options")
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--served-model-name", SERVED_NAME]
    arguments += ["--logprobs-mode", "processed_logprobs", *(["--enable-sleep-mode"] if shared else [])]
    arguments += ["--worker-extension-cls", _WORKER_MODULE + EXTENSION]
    arguments += [RETURN_ROUTING] if routing else []
    arguments += SUPPORTS if truncated else ()
    if any(each.startswith("--worker-extension-cls") for each in asked.arguments):
        raise UserError(
            "engine.options.arguments: leave `--worker-extension-cls` out; the run sets its own, which "
            "writes new weights"
        )
    names = ("--model", "--max-model-len", "--tensor-parallel-size")
    launch = _LaunchCommand("vllm", arguments, DEV_MODE, *names, extended=True, sleeps=shared)
    backend = Vllm(SERVED_NAME, routing=routing, vocabulary=len(tokenizer) if truncated else None)
    return _engine(backend, launch, asked, model, tokenizer, ranks)


def sglang_engine(
    model: Callable[[], Any],
    tokenizer: Any,
    *,
    shared: bool = False,
    ranks: ProcessGroup | None = None,
    **options: Any,
) -> ServedEngine:
    """Build the engine ``sglang``, like ``vllm_engine``. It returns no supports."""
    asked = read_settings(ServedOptions, options, where="engine.options")
    arguments = ["-m", "sglang.launch_server", *(["--enable-memory-saver"] if shared else [])]
    names = ("--model-path", "--context-length", "--tp-size")
    launch = _LaunchCommand("sglang", arguments, {}, *names, sleeps=shared)
    return _engine(SGLang(), launch, asked, model, tokenizer, ranks)


def _engine(
    backend: ServerBackend,
    launch: _LaunchCommand,
    options: ServedOptions,
    model: Callable[[], Any],
    tokenizer: Any,
    group: ProcessGroup | None,
) -> ServedEngine:
    given = options.root()
    ranks = RankServers(group, options.tensor_parallel)
    if given is not None and ranks.several:
        raise UserError(
            "engine.options.url: it is one server, and each rank needs its own: leave it out, and give "
            "`engine.options.python`"
        )
    interpreter = options.interpreter(launch.package) if given is None else ""
    on_a_cpu = bool(interpreter) and options.computes_on_cpu(interpreter)
    with ExitStack() as resources:
        if on_a_cpu and launch.sleeps:
            raise UserError(
                f"engine.placement: the {launch.package} of {interpreter} computes on the CPU, where it "
                "cannot sleep; set it to `apart`"
            )
        folder = _shared_folder(model(), tokenizer, options, ranks)
        resources.callback(folder.close)
        process = None
        root = given
        if root is None and ranks.leads:
            root = f"http://127.0.0.1:{free_port()}"
            process = resources.enter_context(
                _start_server(interpreter, root, launch, options, folder, ranks.environment())
            )
        engine = ServedEngine(
            backend,
            ranks.from_leader(root, "the servers to start"),
            tokenizer,
            folder,
            loaded=given is None,
            process=process,
            ranks=ranks,
            # On a CPU vLLM 0.32 ends when it reads a long prompt of a request with a seed in parts.
            seeds=options.seeds and not (on_a_cpu and launch.extended),
            policy=options.request_policy(),
        )
        resources.pop_all()
    return engine


def _shared_folder(model: Any, tokenizer: Any, options: ServedOptions, ranks: RankServers) -> SharedFolder:
    """Return the model folder, which the first rank of a machine writes. All ranks call this together."""
    if not ranks.owns_folder:
        told = ranks.from_owner(None, "the model folder")
        return FollowedFolder(Path(told["path"]), told["dtype"], told["dtypes"], options.folder)
    folder = ModelFolder(model, tokenizer, options.folder)
    path = str(folder.files().folder)
    ranks.from_owner({"path": path, "dtype": folder.dtype, "dtypes": folder.dtypes}, "the model folder")
    return folder


def _start_server(
    interpreter: str,
    root: str,
    launch: _LaunchCommand,
    options: ServedOptions,
    folder: SharedFolder,
    devices: Mapping[str, str | None],
) -> ServerProcess:
    """Start a server at ``root`` with the run's initial weights, and wait until it answers."""
    at = urlsplit(root)
    environment = {**_OFFLINE, **launch.environment, **devices, **options.environment}
    if launch.extended:
        # Its environment does not have Whetstone.
        modules = folder.folder / "modules"
        modules.mkdir()
        shutil.copy(vllm_worker.__file__, modules / f"{_WORKER_MODULE}.py")
        others = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(modules), others)))
    command = [interpreter, *launch.arguments, launch.model, str(folder.files().folder)]
    command += ["--host", str(at.hostname), "--port", str(at.port)]
    # The default would be the dtype in the folder's config.json, or half precision.
    command += ["--dtype", folder.dtype]
    if options.tensor_parallel > 1:
        command += [launch.tensor_parallel, str(options.tensor_parallel)]
    command += [] if options.max_context is None else [launch.context, str(options.max_context)]
    process = ServerProcess([*command, *options.arguments], environment, folder.folder / "log")
    try:
        process.wait_until_ready(f"{root}/health", options.start_s)
    except BaseException:
        process.close()
        raise
    return process
