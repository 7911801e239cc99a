"""Builds engines by name, and checks their capabilities."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, cast

from whetstone.core.errors import UserError, did_you_mean
from whetstone.engine.engine import Engine, ProcessGroup
from whetstone.engine.settings import AUTO, SERVERS, EngineSection

# Name → `module:callable`, imported on first use and called as in `build_engine`.
ENGINES = {
    "torch": "whetstone.engine.torch_engine:embedded_engine",
    "vllm": "whetstone.engine.served.start:vllm_engine",
    "sglang": "whetstone.engine.served.start:sglang_engine",
}


def check_plugin_engine(settings: EngineSection) -> None:
    """Raise UserError for an unknown engine or one that cannot be imported, and for wrong options of a user's
    engine. Built-in engines check their own options."""
    if settings.kind not in ENGINES and settings.kind != AUTO:
        _check_options(_constructor(settings.kind), settings, {})


def _check_options(construct: Callable[..., Engine], settings: EngineSection, more: dict[str, Any]) -> None:
    try:
        inspect.signature(construct).bind(None, None, **more, **settings.options)
    except TypeError as error:
        raise UserError(f"engine.options: {error}; these are keywords of engine `{settings.kind}`") from None


def build_engine(
    settings: EngineSection,
    model: Callable[[], Any],
    tokenizer: Any,
    *,
    ranks: ProcessGroup | None = None,
    routing: bool = False,
    truncated: bool = False,
    deterministic: bool = False,
) -> Engine:
    """Build the engine in ``settings``, with ``model``, ``tokenizer`` and the options as keywords.

    model: returns the transformers model to serve, which then belongs to the engine. An engine with another
    source of weights never calls it. ranks: of a run of several, which all call this together. For a server,
    ``model`` returns None on a rank that is not the first of its machine. deterministic: whether the run is.
    A server must know two things from its start: ``routing``, whether requests will want the experts of their
    tokens, and ``truncated``, whether replies of requests with top-p or top-k need their supports. Raises
    UserError for an unknown name or option.
    """
    construct = _constructor(settings.kind)
    placed: dict[str, Any] = {}
    if settings.kind in SERVERS:
        placed = {"shared": settings.placement == "shared", "ranks": ranks}
    if settings.kind == "vllm":
        placed |= {"routing": routing, "truncated": truncated}
    if deterministic and settings.kind == "torch":
        placed["invariant"] = True
    _check_options(construct, settings, placed)
    return construct(model, tokenizer, **placed, **settings.options)


def check_capabilities(
    engine: Engine,
    settings: EngineSection,
    *,
    repeatable: bool,
    tensors: bool,
    truncated: bool = False,
    ranks: int = 1,
    routing: bool = False,
) -> None:
    """Raise UserError with a remedy if ``engine`` lacks a capability that a run needs."""
    can = engine.capabilities
    if repeatable and not can.repeatable_streams:
        raise UserError(
            f"engine `{settings.kind}` does not give the same replies for the same seed, so the run cannot "
            "be `deterministic: true`; set it to false, or take `engine.kind: torch`"
        )
    if tensors and "tensors" not in can.weights:
        raise UserError(
            f"engine `{settings.kind}` does not accept tensors as new weights, which training in one process "
            "needs; use `engine.kind: torch`"
        )
    if truncated and not can.supports:
        raise UserError(
            f"engine `{settings.kind}` does not return which tokens top-p and top-k leave, and the trainer's "
            "log-probs are over these; set `sampling.top_p` to 1 and `sampling.top_k` to 0, or take "
            "`engine.kind: torch` or `vllm`"
        )
    if ranks > 1 and not can.every_rank:
        raise UserError(
            f"engine `{settings.kind}` serves one rank, but there are {ranks}; train in one process, or use "
            "`engine.kind: torch`"
        )
    if routing and not can.routing:
        raise no_routing(settings.kind)


def no_routing(kind: str) -> UserError:
    """Return the error for an engine that cannot return the experts of a reply."""
    return UserError(
        f"engine `{kind}` does not return which experts processed a reply, which `trainer.routing_replay` "
        "needs; set it to false, or take `engine.kind: torch` or `vllm`"
    )


def _constructor(kind: str) -> Callable[..., Engine]:
    if kind == AUTO:
        raise UserError("engine.kind: `auto` is resolved when a run starts; name `vllm` or `torch` here")
    target = ENGINES.get(kind, kind)
    module, _, name = target.partition(":")
    if not name:
        known = (*ENGINES, AUTO)
        raise UserError(
            f"engine.kind: unknown engine `{kind}`{did_you_mean(kind, known)}; known: {', '.join(known)}"
            "; or give your own as `package.module:callable`"
        )
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"engine.kind: `{kind}` cannot be imported: {error}") from None
    if not callable(found):
        raise UserError(f"engine.kind: `{kind}` is not callable")
    return cast("Callable[..., Engine]", found)
