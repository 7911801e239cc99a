"""The engines ``vllm`` and ``sglang`` of a recipe: a server that we start, or one at an address."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from whetstone.engine.served.dialect import Dialect
from whetstone.engine.served.engine import ServedEngine
from whetstone.engine.served.handover import Handover
from whetstone.engine.served.process import ServerProcess, free_port
from whetstone.engine.served.settings import ServedOptions
from whetstone.engine.served.sglang import SGLang
from whetstone.engine.served.vllm import SWITCH, Vllm
from whetstone.errors import UserError
from whetstone.settings import read_settings

_KEEPS_OFFLINE = {"HF_HUB_OFFLINE": "1"}
"""The model is a folder here; a server that asked the hub about it would wait for a network."""


class _Launch(Struct, frozen=True):
    """How a kind of server is started: with its package, what comes before the arguments of a recipe."""

    package: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    model: str
    context: str
    packs: bool = False
    """Whether it keeps, on a CPU, a packed copy of an output layer that shares the weights of the input, and
    leaves it as it was when new weights come (vLLM 0.32)."""
    sleeps: bool = False
    """Whether it is to sleep while the trainer has the devices; ``arguments`` say so, too."""


def vllm_engine(
    model: Callable[[], Any], tokenizer: Any, *, shared: bool = False, **options: Any
) -> ServedEngine:
    """The engine ``vllm`` of the table in ``factory.py``; ``options`` are those of ``ServedOptions``.

    shared: whether it is to sleep while the trainer works. Raises UserError for wrong options, and for a
    server that does not start or cannot serve a run.
    """
    asked = read_settings(ServedOptions, options, where="engine.options")
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--served-model-name", asked.served_as]
    arguments += ["--logprobs-mode", "processed_logprobs", *(["--enable-sleep-mode"] if shared else [])]
    launch = _Launch("vllm", arguments, SWITCH, "--model", "--max-model-len", packs=True, sleeps=shared)
    return _engine(Vllm(asked.served_as), launch, asked, model, tokenizer)


def sglang_engine(
    model: Callable[[], Any], tokenizer: Any, *, shared: bool = False, **options: Any
) -> ServedEngine:
    """The engine ``sglang``, as ``vllm_engine``."""
    asked = read_settings(ServedOptions, options, where="engine.options")
    arguments = ["-m", "sglang.launch_server", *(["--enable-memory-saver"] if shared else [])]
    launch = _Launch("sglang", arguments, {}, "--model-path", "--context-length", sleeps=shared)
    return _engine(SGLang(), launch, asked, model, tokenizer)


def _engine(
    dialect: Dialect, launch: _Launch, asked: ServedOptions, model: Callable[[], Any], tokenizer: Any
) -> ServedEngine:
    given = asked.root()
    interpreter = asked.interpreter(launch.package) if given is None else ""
    with ExitStack() as undone:
        on_a_cpu = bool(interpreter) and (launch.packs or launch.sleeps) and _on_a_cpu(interpreter)
        if on_a_cpu and launch.sleeps:
            raise UserError(
                f"engine.placement: the {launch.package} of {interpreter} computes on the CPU, where it "
                "cannot sleep; set it to `apart`"
            )
        handover = Handover(model(), tokenizer, asked.folder, untied=on_a_cpu and launch.packs)
        undone.callback(handover.close)
        process = None
        root = given
        if root is None:
            root = f"http://127.0.0.1:{free_port()}"
            process = undone.enter_context(_started(interpreter, root, launch, asked, handover))
        engine = ServedEngine(
            dialect,
            root,
            tokenizer,
            handover,
            loaded=process is not None,
            process=process,
            seeds=asked.seeds,
            manners=asked.manners(),
        )
        undone.pop_all()
    return engine


def _on_a_cpu(interpreter: str) -> bool:
    """Whether the torch of an environment knows no accelerator."""
    asks = "import torch.version as v; print(any(getattr(v, n, None) for n in ('cuda', 'hip', 'xpu')))"
    done = subprocess.run([interpreter, "-c", asks], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "False"


def _started(
    interpreter: str, root: str, launch: _Launch, asked: ServedOptions, handover: Handover
) -> ServerProcess:
    """A server that answers at ``root``, with the run's first weights."""
    at = urlsplit(root)
    environment = {**_KEEPS_OFFLINE, **launch.environment, **asked.environment}
    with handover.now() as first:
        command = [interpreter, *launch.arguments, launch.model, str(first)]
        command += ["--host", str(at.hostname), "--port", str(at.port)]
        # Of its own accord a server computes in what the folder's config.json says, or in half precision.
        command += ["--dtype", handover.dtype]
        command += [] if asked.max_context is None else [launch.context, str(asked.max_context)]
        process = ServerProcess([*command, *asked.arguments], environment, handover.folder / "log")
        try:
            process.wait_until_ready(f"{root}/health", asked.start_s)
        except BaseException:
            process.close()
            raise
    return process
