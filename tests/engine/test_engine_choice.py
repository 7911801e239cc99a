"""An engine of one's own: named in a recipe, made by the factory, refused for what it cannot promise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.dry_run import DryRunEngine
from whetstone.engine.engine import Capabilities, Completion, GenerationRequest
from whetstone.engine.factory import build_engine, check_capabilities
from whetstone.engine.scratch import CONTEXT, build_miniature
from whetstone.engine.settings import EngineSection
from whetstone.engine.torch_engine import TorchEngine


class Echo:
    """Replies with the prompt; takes new weights as a folder only, and promises no stream."""

    capabilities = Capabilities(repeatable_streams=False, weights=frozenset({"folder"}))

    def __init__(self, model: Any, tokenizer: Any, *, times: int = 1) -> None:
        self.version = 0
        self.times = times

    def check(self, request: GenerationRequest) -> None:
        pass

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        ids = request.prompt_ids * self.times
        for index in range(request.n):
            yield Completion(index, ids, [0.0] * len(ids), [self.version] * len(ids), "stop")

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        self.version = version

    async def close(self) -> None:
        pass


def never() -> Any:
    raise AssertionError("an engine that serves from elsewhere needs no model")


def test_an_engine_of_ones_own_is_named_by_its_path_and_takes_its_options() -> None:
    engine = build_engine(EngineSection(kind=f"{__name__}:Echo", options={"times": 3}), never, None)
    assert isinstance(engine, Echo)
    assert engine.times == 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "troch"}, r"unknown engine `troch`.*did you mean `torch`.*package\.module:callable"),
        ({"kind": "no.such:Engine"}, "cannot be imported: No module named 'no'"),
        ({"kind": "whetstone.engine.engine:Nothing"}, "cannot be imported"),
    ],
)
def test_errors_of_building_an_engine_name_the_remedy(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        build_engine(EngineSection(**settings), never, None)


def test_a_misspelt_option_of_the_torch_engine_is_refused_with_the_section() -> None:
    with pytest.raises(ValidationError, match=r"options\.max_bach"):
        EngineSection(options={"max_bach": 3})


def test_a_missing_engine_capability_is_refused(build_model: Any, tokenizer: Any) -> None:
    settings = EngineSection(kind=f"{__name__}:Echo")
    echo = build_engine(settings, never, None)
    with pytest.raises(UserError, match=r"deterministic: true.*engine\.kind: torch"):
        check_capabilities(echo, settings, repeatable=True, tensors=False)
    with pytest.raises(UserError, match="does not accept tensors"):
        check_capabilities(echo, settings, repeatable=False, tensors=True)
    embedded = build_engine(EngineSection(options={"max_batch": 3}), lambda: build_model("llama"), tokenizer)
    assert isinstance(embedded, TorchEngine)
    check_capabilities(embedded, EngineSection(), repeatable=True, tensors=True)


def test_a_dry_run_engine_checks_the_length_of_prompts() -> None:
    model, _ = build_miniature("qwen3", ["print(1)"], 0)
    params = Sampling(max_tokens=100)
    for most, context in ((None, CONTEXT), (300, 300), (2 * CONTEXT, CONTEXT)):
        engine = DryRunEngine(model.config.max_position_embeddings, most)
        engine.check(GenerationRequest([1] * (context - 100), params))
        with pytest.raises(UserError, match=f"exceed the context of {context}"):
            engine.check(GenerationRequest([1] * (context - 99), params))
