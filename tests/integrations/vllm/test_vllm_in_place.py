"""vLLM itself takes new weights in place: all, or the changed elements, also of a tied output layer."""

from __future__ import annotations

import asyncio

import pytest
import torch

from tests.integrations.vllm.small_models import gap, model, serving, whole
from whetstone.core.settings import Sampling
from whetstone.engine.engine import GenerationRequest

pytest.importorskip("vllm")
pytestmark = pytest.mark.integration


def test_vllm_has_the_weights_that_were_written_into_it(caplog: pytest.LogCaptureFixture) -> None:
    engine, prompt = serving(model(0)), [1, 2, 3]
    asked = GenerationRequest(prompt, Sampling(max_tokens=100))

    async def story() -> None:
        before = model(0)
        for version in (1, 2):
            trained = model(1)
            if version == 2:
                # Few elements, but they move the replies far away.
                with torch.no_grad():
                    for parameter in trained.parameters():
                        flat = parameter.view(-1)
                        flat[torch.randperm(flat.numel())[: max(1, flat.numel() // 50)]] += 0.3
            await engine.update_weights(trained.named_parameters(), version)
            [reply] = await whole(engine.generate(asked))
            found, wrong = (gap(each, prompt, reply, version) for each in (trained, before))
            print(f"version {version}: mean gap {found:.4f}, to the weights before {wrong:.4f}")
            assert found < wrong / 4
            before = trained
        await engine.close()

    asyncio.run(story())
    # It would say that it reloads the folder instead.
    assert caplog.text == ""
