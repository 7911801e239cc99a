"""Chooses the engine for ``engine.kind: auto``."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.engine.served.settings import ServedOptions
from whetstone.engine.settings import AUTO, EngineSection, TorchOptions

# The options of the engines between which ``auto`` chooses.
_OPTIONS = {"torch": frozenset(TorchOptions.model_fields), "vllm": frozenset(ServedOptions.model_fields)}


class EngineChoice(Struct, frozen=True):
    """``kind``: an engine of ``factory.ENGINES``. ``reason``: for the log."""

    kind: str
    reason: str


def choose_engine(section: EngineSection, device: str, needs_embedded: str = "") -> EngineChoice:
    """Return vLLM if ``device`` is a CUDA device and the package exists, and the embedded engine otherwise.

    device: ``model.device``. needs_embedded: why a run cannot use a server; empty if it can. The package must
    be in the environment of ``engine.options.python``, by default in this one, and built for an accelerator.
    Raises UserError for an unknown device.
    """
    # Imported here, because this module is also used where torch is not.
    from whetstone.engine.device import pick_device

    if needs_embedded:
        return EngineChoice("torch", needs_embedded)
    if pick_device(device).type != "cuda":
        return EngineChoice("torch", "there is no CUDA device")
    options = ServedOptions.model_validate(_options_for("vllm", section.options))
    try:
        interpreter = options.interpreter("vllm")
    except UserError as error:
        return EngineChoice("torch", str(error))
    if options.computes_on_cpu(interpreter):
        return EngineChoice("torch", f"the vLLM of {interpreter} is built for the CPU")
    return EngineChoice("vllm", "there are a CUDA device and vLLM")


def with_kind(section: EngineSection, kind: str) -> EngineSection:
    """Return a section of the kind ``auto`` for the engine ``kind``, without the options of others."""
    assert section.kind == AUTO
    placement = "apart" if kind == "torch" else section.placement
    return EngineSection(kind=kind, placement=placement, options=_options_for(kind, section.options))


def _options_for(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    known = _OPTIONS[kind]
    return {key: value for key, value in options.items() if key in known}
