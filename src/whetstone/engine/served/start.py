"""Builds the engines ``vllm`` and ``sglang`` of a recipe: a server that is started here, or one at an
address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.settings import read_settings
from whetstone.engine.served.backend import ServerBackend
from whetstone.engine.served.engine import ServedEngine
from whetstone.engine.served.model_folders import ModelFolderWriter
from whetstone.engine.served.process import ServerProcess, free_port
from whetstone.engine.served.settings import ServedOptions
from whetstone.engine.served.sglang import SGLang
from whetstone.engine.served.vllm import DEV_MODE, Vllm

# The model is a local folder. A server that queried the hub would wait for a network.
_OFFLINE = {"HF_HUB_OFFLINE": "1"}


class _LaunchCommand(Struct, frozen=True):
    """How to start a kind of server: its package, and the arguments before those of a recipe."""

    package: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    model: str
    context: str
    packs: bool = False
    """Whether, on a CPU, it keeps a packed copy of an output layer that shares the input's weights, and does
    not update that copy with new weights (vLLM 0.32)."""
    sleeps: bool = False
    """Whether it must sleep while the trainer uses the devices; ``arguments`` then enable this."""


def vllm_engine(
    model: Callable[[], Any], tokenizer: Any, *, shared: bool = False, **options: Any
) -> ServedEngine:
    """Build the engine ``vllm`` of the table in ``factory.py``; ``options`` are those of ``ServedOptions``.

    shared: whether it sleeps while the trainer works. Raises UserError for wrong options, and for a server
    that does not start or cannot serve a run.
    """
    asked = read_settings(ServedOptions, options, where="engine.options")
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--served-model-name", asked.served_as]
    arguments += ["--logprobs-mode", "processed_logprobs", *(["--enable-sleep-mode"] if shared else [])]
    launch = _LaunchCommand(
        "vllm", arguments, DEV_MODE, "--model", "--max-model-len", packs=True, sleeps=shared
    )
    return _engine(Vllm(asked.served_as), launch, asked, model, tokenizer)


def sglang_engine(
    model: Callable[[], Any], tokenizer: Any, *, shared: bool = False, **options: Any
) -> ServedEngine:
    """Build the engine ``sglang``, like ``vllm_engine``."""
    asked = read_settings(ServedOptions, options, where="engine.options")
    arguments = ["-m", "sglang.launch_server", *(["--enable-memory-saver"] if shared else [])]
    launch = _LaunchCommand("sglang", arguments, {}, "--model-path", "--context-length", sleeps=shared)
    return _engine(SGLang(), launch, asked, model, tokenizer)


def _engine(
    backend: ServerBackend,
    launch: _LaunchCommand,
    options: ServedOptions,
    model: Callable[[], Any],
    tokenizer: Any,
) -> ServedEngine:
    given = options.root()
    interpreter = options.interpreter(launch.package) if given is None else ""
    with ExitStack() as resources:
        on_a_cpu = (
            bool(interpreter) and (launch.packs or launch.sleeps) and options.computes_on_cpu(interpreter)
        )
        if on_a_cpu and launch.sleeps:
            raise UserError(
                f"engine.placement: the {launch.package} of {interpreter} computes on the CPU, where it "
                "cannot sleep; set it to `apart`"
            )
        folder_writer = ModelFolderWriter(
            model(), tokenizer, options.folder, untied=on_a_cpu and launch.packs
        )
        resources.callback(folder_writer.close)
        process = None
        root = given
        if root is None:
            root = f"http://127.0.0.1:{free_port()}"
            process = resources.enter_context(
                _start_server(interpreter, root, launch, options, folder_writer)
            )
        engine = ServedEngine(
            backend,
            root,
            tokenizer,
            folder_writer,
            loaded=process is not None,
            process=process,
            seeds=options.seeds,
            policy=options.request_policy(),
        )
        resources.pop_all()
    return engine


def _start_server(
    interpreter: str,
    root: str,
    launch: _LaunchCommand,
    options: ServedOptions,
    folder_writer: ModelFolderWriter,
) -> ServerProcess:
    """Start a server at ``root`` with the run's initial weights, and wait until it answers."""
    at = urlsplit(root)
    environment = {**_OFFLINE, **launch.environment, **options.environment}
    with folder_writer.current_folder() as first:
        command = [interpreter, *launch.arguments, launch.model, str(first)]
        command += ["--host", str(at.hostname), "--port", str(at.port)]
        # The default would be the dtype in the folder's config.json, or half precision.
        command += ["--dtype", folder_writer.dtype]
        command += [] if options.max_context is None else [launch.context, str(options.max_context)]
        process = ServerProcess([*command, *options.arguments], environment, folder_writer.folder / "log")
        try:
            process.wait_until_ready(f"{root}/health", options.start_s)
        except BaseException:
            process.close()
            raise
    return process
