"""Engines by name: the table, and how one is made for those who generate."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, cast

from whetstone.engine.engine import Engine
from whetstone.engine.settings import SERVERS, EngineSection
from whetstone.errors import UserError, did_you_mean

ENGINES = {
    "torch": "whetstone.engine.torch_engine:embedded_engine",
    "vllm": "whetstone.engine.served.start:vllm_engine",
    "sglang": "whetstone.engine.served.start:sglang_engine",
}
"""Name → ``module:callable``, imported when it is first asked for and called as ``build_engine`` says."""


def check_own_engine(settings: EngineSection) -> None:
    """Raise UserError for an engine that nobody knows or that cannot be imported, and for wrong options of an
    engine of the user's own. Those of the engines that ship have checks of their own."""
    if settings.kind not in ENGINES:
        _check_options(_constructor(settings.kind), settings, {})


def _check_options(construct: Callable[..., Engine], settings: EngineSection, more: dict[str, Any]) -> None:
    try:
        inspect.signature(construct).bind(None, None, **more, **settings.options)
    except TypeError as error:
        raise UserError(f"engine.options: {error}; these are keywords of engine `{settings.kind}`") from None


def build_engine(settings: EngineSection, model: Callable[[], Any], tokenizer: Any) -> Engine:
    """The engine that ``settings`` name, called with ``model``, ``tokenizer`` and the options as keywords.

    model: gives the transformers model to serve, which belongs to the engine from then on; one that serves
        from elsewhere never calls it. Raises UserError for a name or an option that nobody knows.
    """
    construct = _constructor(settings.kind)
    placed = {"shared": settings.placement == "shared"} if settings.kind in SERVERS else {}
    _check_options(construct, settings, placed)
    return construct(model, tokenizer, **placed, **settings.options)


def require(
    engine: Engine,
    settings: EngineSection,
    *,
    repeatable: bool,
    tensors: bool,
    full_logprobs: bool = False,
    ranks: int = 1,
) -> None:
    """Raise UserError, naming the way out, when ``engine`` cannot do what a run needs of it."""
    can = engine.capabilities
    if repeatable and not can.repeatable_streams:
        raise UserError(
            f"engine `{settings.kind}` does not give the same replies for the same seed, so the run cannot "
            "be `deterministic: true`; set it to false, or take `engine.kind: torch`"
        )
    if tensors and "tensors" not in can.weights:
        raise UserError(
            f"engine `{settings.kind}` takes no tensors as new weights, and training in one process hands "
            "over nothing else; take `engine.kind: torch`"
        )
    if full_logprobs and not can.full_logprobs:
        raise UserError(
            f"engine `{settings.kind}` gives the log-probs of what top-p and top-k leave, and the trainer's "
            "are of all tokens; set `sampling.top_p` to 1 and `sampling.top_k` to 0, or take `engine.kind: "
            "torch`"
        )
    if ranks > 1 and not can.every_rank:
        raise UserError(
            f"engine `{settings.kind}` serves one rank, and these are {ranks}; train in one process, or take "
            "`engine.kind: torch`"
        )


def _constructor(kind: str) -> Callable[..., Engine]:
    target = ENGINES.get(kind, kind)
    module, _, name = target.partition(":")
    if not name:
        raise UserError(
            f"engine.kind: unknown engine `{kind}`{did_you_mean(kind, ENGINES)}; known: {', '.join(ENGINES)}"
            "; your own is `package.module:callable`"
        )
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"engine.kind: `{kind}` cannot be imported: {error}") from None
    if not callable(found):
        raise UserError(f"engine.kind: `{kind}` is not callable")
    return cast("Callable[..., Engine]", found)
