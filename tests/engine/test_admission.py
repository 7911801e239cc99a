"""Replies enter the running batch by what the cache can hold, and that changes no reply."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.architecture import rope_limits
from whetstone.engine.batches import Ticket
from whetstone.engine.engine import GenerationRequest
from whetstone.engine.memory import total_memory
from whetstone.engine.scheduler import Scheduler
from whetstone.engine.torch_engine import TorchEngine

Build = Callable[..., Any]


def requests(seed: int) -> list[GenerationRequest]:
    """Long and short ones by turns, several replies each."""
    rng = random.Random(seed)
    return [
        GenerationRequest(
            [rng.randrange(256) for _ in range(rng.choice((1, 20, 150)))],
            Sampling(max_tokens=rng.choice((3, 30, 200))),
            n=rng.randint(1, 6),
            seed=i,
        )
        for i in range(12)
    ]


def drained(
    scheduler: Scheduler, asked: list[GenerationRequest]
) -> tuple[dict[tuple[int, int], list[int]], int]:
    """All replies by request and index, and the most that the cache took after any step."""
    tickets = [Ticket(request) for request in asked]
    for ticket in tickets:
        scheduler.add(ticket)
    most = 0
    replies: dict[tuple[int, int], list[int]] = {}
    while scheduler.busy:
        for ticket, reply in scheduler.step(0):
            replies[tickets.index(ticket), reply.index] = reply.token_ids
        most = max(most, scheduler.bytes)
    return replies, most


@pytest.mark.drawn(1)
@pytest.mark.parametrize("architecture", ["llama", "phi3"])
def test_the_cache_stays_within_its_bytes_and_every_reply_is_the_same(
    architecture: str, build_model: Build, tokenizer: Any
) -> None:
    # So exact that a batch of another size does not tip a draw.
    model = build_model(architecture, dtype=torch.float64)
    plain = copy.deepcopy(tokenizer)
    plain.eos_token = None
    model.generation_config.eos_token_id = None
    rope = rope_limits(model)
    roomy = Scheduler(model, plain, max_batch=64, cache_bytes=2**30, rope=rope)
    replies, free = drained(roomy, requests(0))
    # The longest reply needs three blocks of columns; one batch, or each of two, gets seven.
    batches = 1 if rope.switch is None else 2
    tight = 7 * 128 * roomy.token_bytes * batches
    assert free > 2 * tight
    scheduler = Scheduler(model, plain, max_batch=64, cache_bytes=tight, rope=rope)
    again, most = drained(scheduler, requests(0))
    assert most <= tight
    assert again == replies


def test_a_request_that_the_cache_could_never_hold_is_refused(build_model: Build, tokenizer: Any) -> None:
    """A token takes 512 bytes in this model, so that 1 MiB holds 2048 of them."""
    model = build_model("qwen3", dtype=torch.float32)
    engine = TorchEngine(model, tokenizer, cache_mb=1, max_context=4096)
    engine.check(GenerationRequest([1] * 900, Sampling(max_tokens=1000)))
    with pytest.raises(UserError, match=r"up to 1200 new ones may take 1 MiB .* holds 1; raise .*cache_mb"):
        engine.check(GenerationRequest([1] * 900, Sampling(max_tokens=1200)))
    with pytest.raises(UserError, match="cache_mb is 0"):
        TorchEngine(model, tokenizer, cache_mb=0)


def test_the_memory_of_this_machine_is_the_same_whenever_it_is_asked() -> None:
    ballast = torch.ones(8_000_000)
    assert total_memory(torch.device("cpu")) == total_memory(torch.device("cpu")) > ballast.nbytes
