"""The supervised warm-up: it learns, repeats itself exactly, and teaches where a reply ends."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whetstone.data.micro import micro_examples
from whetstone.engine.scratch import build_scratch
from whetstone.errors import UserError
from whetstone.recipe import ScratchModel, WarmupSection
from whetstone.trainer.warmup import warm_up, warmup_rate

SMALL = ScratchModel(hidden_size=48, layers=2, heads=2, kv_heads=2, intermediate_size=96, vocab_size=384)


def warmed(settings: WarmupSection, examples: list[tuple[str, str]]) -> tuple[object, object, list[float]]:
    model, tokenizer = build_scratch(SMALL, (p + r for p, r in examples), seed=0)
    return model, tokenizer, warm_up(model, tokenizer, examples, settings)


def test_a_few_steps_lower_the_loss_and_repeat_exactly() -> None:
    settings = WarmupSection(steps=15, batch_size=16, lr=5e-3, wrong_share=0.7)
    examples = micro_examples(15 * 16, 0, settings.wrong_share)
    _, _, losses = warmed(settings, examples)
    assert losses[-1] < 0.75 * losses[0]
    assert warmed(settings, examples)[2] == losses


def test_a_warmed_up_model_writes_the_reply_and_ends_it() -> None:
    settings = WarmupSection(steps=80, batch_size=8, lr=5e-3, wrong_share=0.0)
    pairs = micro_examples(4, 0, 0.0)
    model, tokenizer, _ = warmed(settings, pairs * 160)
    for prompt, reply in pairs:
        ids = torch.tensor([tokenizer.encode(prompt)])  # type: ignore[attr-defined]
        out = model.generate(  # type: ignore[attr-defined]
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False
        )[0, ids.shape[1] :].tolist()
        assert out[-1] == tokenizer.eos_token_id  # type: ignore[attr-defined]
        assert tokenizer.decode(out[:-1]) == reply  # type: ignore[attr-defined]


def test_every_step_is_reported() -> None:
    seen: list[tuple[int, float]] = []
    examples = micro_examples(12, 0, 0.7)
    model, tokenizer = build_scratch(SMALL, (p + r for p, r in examples), seed=0)
    losses = warm_up(
        model,
        tokenizer,
        examples,
        WarmupSection(steps=3, batch_size=4),
        lambda i, loss: seen.append((i, loss)),
    )
    assert seen == list(enumerate(losses))


def test_too_few_examples_are_an_error() -> None:
    examples = micro_examples(7, 0, 0.7)
    model, tokenizer = build_scratch(SMALL, (p + r for p, r in examples), seed=0)
    with pytest.raises(UserError, match="8 examples; there are 7"):
        warm_up(model, tokenizer, examples, WarmupSection(steps=2, batch_size=4))


@given(lr=st.floats(1e-6, 1.0), steps=st.integers(2, 500))
def test_the_rate_rises_to_its_peak_and_falls_to_almost_nothing(lr: float, steps: int) -> None:
    rates = [warmup_rate(lr, step, steps) for step in range(steps)]
    peak = rates.index(max(rates))
    assert max(rates) == pytest.approx(lr)
    assert all(0 < rate <= lr * (1 + 1e-12) for rate in rates)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == pytest.approx(lr) if steps == 2 else rates[-1] < lr
