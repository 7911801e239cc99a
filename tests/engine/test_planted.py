"""Replies that are planted carry the log-probs that they have under the model that serves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.scratch import architecture_of, build_miniature
from whetstone.engine.scripted import ScriptedEngine
from whetstone.engine.torch_engine import TorchEngine

TEXTS = ["print(a + b)", "def f(x):\n    return x\n"] * 3


@pytest.mark.parametrize("family", ["qwen2", "qwen3_moe"])
def test_every_fourth_reply_is_right_and_its_log_probs_are_the_models(tmp_path: Path, family: str) -> None:
    model, tokenizer = build_miniature(family, TEXTS, 1)
    planted = tmp_path / "planted.json"
    planted.write_text(json.dumps({"def f(x):\n": {"right": "    return x\n", "wrong": "no"}}))
    params = Sampling(temperature=0.7, max_tokens=12)
    request = GenerationRequest(tokenizer.encode("def f(x):\n"), params, n=8, seed=3)

    async def drawn(engine: TorchEngine | ScriptedEngine) -> list[Completion]:
        replies = [reply async for reply in engine.generate(request)]
        return sorted(replies, key=lambda reply: reply.index)

    async def both() -> tuple[list[Completion], list[Completion], list[list[float]]]:
        engine = TorchEngine(model, tokenizer)
        own = await drawn(engine)
        scores = [(await engine.score(request, reply.token_ids))[0] for reply in own]
        await engine.close()
        smoke = ScriptedEngine(model, tokenizer, planted=str(planted))
        mixed = await drawn(smoke)
        await smoke.close()
        return own, mixed, scores

    own, mixed, scores = asyncio.run(both())
    for reply, score in zip(own, scores, strict=True):
        assert score == pytest.approx(reply.logprobs, abs=1e-4)
    texts = [tokenizer.decode(reply.token_ids, skip_special_tokens=True) for reply in mixed]
    assert [texts[i] for i in (0, 2, 4, 6)] == ["    return x\n", "no"] * 2
    assert [mixed[i].token_ids for i in (1, 3, 5, 7)] == [own[i].token_ids for i in (1, 3, 5, 7)]
    assert all(len(reply.logprobs) == len(reply.token_ids) for reply in mixed)


def test_an_unknown_model_that_is_not_here_is_refused() -> None:
    assert architecture_of("Qwen/Qwen3-30B-A3B-Instruct-2507") == "qwen3_moe"
    assert architecture_of("Qwen/Qwen3-4B-Instruct-2507") == "qwen3"
    with pytest.raises(UserError, match=r"set `model\.path` to a folder"):
        architecture_of("someone/some-model-7b")
