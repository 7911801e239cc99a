"""vLLM itself asleep and awake again, by the requests of ``engine.placement: shared``.

On a CPU it gives no memory back, and says so in its log; that its weights are others afterwards, and which,
is the same there.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.integrations.vllm.small_models import gap, model, serving, whole
from whetstone.core.settings import Sampling
from whetstone.engine.engine import GenerationRequest, Sleeper

pytest.importorskip("vllm")
pytestmark = pytest.mark.integration


def test_vllm_wakes_with_new_weights_or_with_those_that_it_had() -> None:
    engine, prompt = serving(model(0)), [1, 2, 3]
    assert isinstance(engine, Sleeper)
    asked = GenerationRequest(prompt, Sampling(max_tokens=100))

    async def story() -> None:
        for version in (1, 2):
            await engine.sleep()
            await engine.update_weights(model(version).named_parameters(), version)
            await engine.sleep()
            [reply] = await whole(engine.generate(asked))
            found, wrong = (gap(model(seed), prompt, reply, version) for seed in (version, 0))
            print(f"version {version}: mean gap {found:.4f}, to the first weights {wrong:.4f}")
            assert found < wrong / 4
        await engine.close()

    asyncio.run(story())
