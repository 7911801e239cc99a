"""The supervised warm-up: it learns, repeats itself exactly, and teaches where a reply ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whetstone.data.micro import MICRO_PREFIX, micro_examples, micro_tasks
from whetstone.engine.scratch import build_scratch
from whetstone.engine.settings import ScratchModel
from whetstone.environments.demonstrations import encode_turns
from whetstone.trainer.settings import WarmupSection
from whetstone.trainer.warmup import Example, warm_up, warmup_rate

SMALL = ScratchModel(hidden_size=64, layers=1, heads=2, kv_heads=2, intermediate_size=128, vocab_size=400)


def untrained() -> tuple[Any, Any]:
    return build_scratch(SMALL, (p + r for p, r in micro_examples(600, 0, 0.7)), seed=0)


def examples(tokenizer: Any, settings: WarmupSection, seed: int) -> list[Example]:
    pairs = micro_examples(settings.steps * settings.batch_size, seed, settings.wrong_share or 0.0)
    return [example for pair in pairs for example in encode_turns([pair], tokenizer)]


def warmed_up(settings: WarmupSection, seed: int) -> list[float]:
    model, tokenizer = untrained()
    return warm_up(model, examples(tokenizer, settings, seed), settings)


def test_a_few_steps_lower_the_loss_and_repeat_exactly() -> None:
    settings = WarmupSection(steps=15, batch_size=16, lr=5e-3, wrong_share=0.7)
    losses = warmed_up(settings, 3)
    assert losses[-1] < 0.75 * losses[0]
    assert warmed_up(settings, 3) == losses
    assert warmed_up(settings, 4) != losses


def test_every_step_is_reported() -> None:
    seen: list[tuple[int, float]] = []
    settings = WarmupSection(steps=3, batch_size=4)
    model, tokenizer = untrained()
    batches = examples(tokenizer, settings, 0)
    losses = warm_up(model, batches, settings, lambda step, loss: seen.append((step, loss)))
    assert seen == list(enumerate(losses))


@pytest.mark.extended
def test_a_warmed_up_model_writes_whole_expressions_and_ends_them() -> None:
    model, tokenizer = untrained()
    settings = WarmupSection(steps=160, batch_size=16, lr=5e-3, wrong_share=0.0)
    warm_up(model, examples(tokenizer, settings, 0), settings)
    known = {task.expression for task in micro_tasks()}
    written: list[str] = []
    for prompt, _ in micro_examples(12, 1, 0.0):
        assert prompt.endswith(MICRO_PREFIX)
        ids = torch.tensor([tokenizer.encode(prompt)])
        out = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False
        )[0, ids.shape[1] :].tolist()
        if out[-1] == tokenizer.eos_token_id:
            written.append(tokenizer.decode(out[:-1]))
    # Which expression is right takes longer to learn than that it is one of them.
    assert sum(text in known for text in written) >= 6


@given(lr=st.floats(1e-6, 1.0), steps=st.integers(2, 500))
def test_the_rate_rises_to_its_peak_and_then_falls(lr: float, steps: int) -> None:
    rates = [warmup_rate(lr, step, steps) for step in range(steps)]
    peak = rates.index(max(rates))
    assert max(rates) == pytest.approx(lr)
    assert min(rates) > 0
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)


def test_the_rate_ends_near_zero() -> None:
    assert warmup_rate(1.0, 199, 200) < 1e-3
