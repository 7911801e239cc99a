"""vLLM itself behind a replica's weights: it follows a publisher, and its replies go on under new ones."""

from __future__ import annotations

import asyncio

import pytest
import torch

from tests.integrations.vllm.small_models import gap, model, serving, whole
from whetstone.core.settings import Sampling
from whetstone.engine.engine import GenerationRequest
from whetstone.weights.offer import Offer
from whetstone.weights.publisher import VersionPublisher
from whetstone.weights.replica import published_tensors
from whetstone.weights.settings import WeightsSection
from whetstone.weights.subscription import SubscribedWeights

pytest.importorskip("vllm")
pytestmark = pytest.mark.integration


def test_vllm_follows_and_replies_in_flight_go_on_under_the_new_version() -> None:
    served, prompt = model(0), [1, 2, 3]
    engine = serving(served)
    settings, said = WeightsSection(), list[str]()
    weights = SubscribedWeights({"policy": (engine, served)}, settings, log=said.append)

    async def story(published: VersionPublisher) -> None:
        versions = {number: model(number) for number in (1, 2, 3)}

        def publish(number: int) -> Offer:
            return published.publish(number, published_tensors(versions[number]).items()).result()

        await weights.apply("policy", publish(1))
        asked = GenerationRequest(prompt, Sampling(max_tokens=1500), n=2)
        replies = asyncio.ensure_future(whole(engine.generate(asked)))
        await asyncio.sleep(1.0)
        publish(2)
        offer = publish(3)
        await weights.apply("policy", offer)
        assert weights.serving["policy"] == offer
        for reply in await replies:
            # Two versions behind, and one reload: no token of version 2.
            assert sorted(set(reply.versions)) == [1, 3]
            for number, other in ((1, 3), (3, 1)):
                found = gap(versions[number], prompt, reply, number)
                wrong = gap(versions[other], prompt, reply, number)
                print(f"version {number}: mean gap {found:.4f}, to the other version {wrong:.4f}")
                # Rounding in bf16 makes .05 of it; up to .33 was seen where a reply went on.
                assert found < wrong / 4
        await engine.close()

    with VersionPublisher("policy", settings, dtype=torch.bfloat16) as published:
        asyncio.run(story(published))
    weights.close()
    print(*said, sep="\n")
