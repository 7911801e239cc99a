"""The sampler against distributions computed in the plainest way."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whetstone.core.settings import Sampling
from whetstone.engine.sampling import Sampler


def params(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Sampling:
    return Sampling(max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p)


def kept_shares(logits: list[float], p: Sampling) -> list[float]:
    """The distribution that is drawn from, for logits without ties."""
    weights = [math.exp((x - max(logits)) / p.temperature) for x in logits]
    ranked = sorted(range(len(logits)), key=lambda i: -weights[i])
    if p.top_k:
        ranked = ranked[: p.top_k]
    mass, total, kept = 0.0, sum(weights[i] for i in ranked), []
    for i in ranked:
        kept.append(i)
        mass += weights[i]
        if mass >= p.top_p * total:
            break
    share = {i: weights[i] / mass for i in kept}
    return [share.get(i, 0.0) for i in range(len(logits))]


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    "p", [params(), params(0.5), params(2.0, top_k=3), params(top_p=0.7), params(1.5, top_k=6, top_p=0.8)]
)
@pytest.mark.parametrize("vocabulary", [8, 700])
def test_frequencies_follow_the_truncated_distribution(p: Sampling, vocabulary: int) -> None:
    """Stratified uniforms leave less than one draw of error a token, so this is exact, not statistical."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(vocabulary, generator=generator) * 2
    draws = 20_000
    uniforms = [(i + 0.5) / draws for i in range(draws)]
    counts = torch.zeros(vocabulary, dtype=torch.long)
    sampler = Sampler()
    for first in range(0, draws, 1000):
        block = uniforms[first : first + 1000]
        tokens, _, _ = sampler.draw(logits.expand(len(block), -1), [p] * len(block), block)
        counts += torch.bincount(torch.tensor(tokens), minlength=vocabulary)
    expected = torch.tensor(kept_shares(logits.tolist(), p)) * draws
    assert (counts - expected).abs().max() <= 1.5
    assert not counts[expected == 0].any()


@given(
    # Steps of a hundredth, so that float32 tells their weights apart.
    hundredths=st.lists(st.integers(-3000, 3000), min_size=1, max_size=600, unique=True),
    uniform=st.floats(0, 1, exclude_max=True),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 4, 1000]),
    top_p=st.sampled_from([0.05, 0.5, 0.999, 1.0]),
)
@settings(max_examples=150, deadline=None)
def test_every_draw_is_kept_and_its_logprob_is_over_its_support(
    hundredths: list[int], uniform: float, temperature: float, top_k: int, top_p: float
) -> None:
    logits = [h / 100 for h in hundredths]
    p = params(temperature, top_k, top_p)
    row = torch.tensor([logits])
    (token,), (logprob,), (support,) = Sampler().draw(row, [p], [uniform])
    assert bool(support) == (top_k > 0 or top_p < 1)
    kept = row[0].double()[support or slice(None)] / temperature
    expected = row[0, token].double() / temperature - torch.logsumexp(kept, -1)
    assert logprob == pytest.approx(float(expected), abs=1e-4)
    if support:
        assert token in support
        assert support == sorted(set(support))
        # In float32 the sum of weights decides about the last token.
        sure, possible = (
            {i for i, share in enumerate(kept_shares(logits, params(temperature, top_k, mass))) if share}
            for mass in (top_p - 1e-5 if top_p < 1 else 1.0, min(1.0, top_p + 1e-5))
        )
        # Nothing depends on the others, which rounding may drop from either sum.
        counted = {i for i in range(len(logits)) if (max(logits) - logits[i]) / temperature < 12}
        assert sure & counted <= set(support) & counted <= possible


@given(seed=st.integers(0, 1000), uniform=st.floats(0, 1, exclude_max=True))
@settings(max_examples=30, deadline=None)
def test_a_sampled_token_does_not_depend_on_other_rows(seed: int, uniform: float) -> None:
    logits = torch.randn(5, 1500, generator=torch.Generator().manual_seed(seed)) * 3
    rows = [params(), params(0.7, top_p=0.9), params(0), params(top_k=5), params(top_p=0.9999)]
    together = Sampler().draw(logits, rows, [uniform] * 5)
    for i, p in enumerate(rows):
        alone = Sampler().draw(logits[i : i + 1], [p], [uniform])
        assert (together[0][i], together[1][i]) == (alone[0][0], pytest.approx(alone[1][0]))
        assert together[2][i] == alone[2][0]


def test_top_p_beyond_the_first_candidates_sorts_the_whole_row() -> None:
    """A flat row needs nine tenths of 5000 tokens for top-p 0.9; the cheapest tokens stay out."""
    logits = torch.linspace(0, 0.001, 5000)[None]
    drawn = [Sampler().draw(logits, [params(top_p=0.9)], [u])[0][0] for u in (0.0, 0.5, 0.999999)]
    assert drawn[0] == pytest.approx(500, abs=5)
    assert drawn[1] == pytest.approx(2750, abs=5)
    assert drawn[2] == pytest.approx(4999, abs=5)


def test_ties_with_the_last_kept_token_are_kept() -> None:
    tied = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]])
    drawn = {Sampler().draw(tied, [params(top_k=2)], [u])[0][0] for u in (0.1, 0.5, 0.9)}
    assert drawn == {1, 2, 3}


def test_the_ends_of_the_unit_interval_hit_tokens_with_mass() -> None:
    logits = torch.full((2, 300), -1e4)
    logits[:, 40] = 0.0
    logits[:, 41] = -1.0
    tokens, _, _ = Sampler().draw(logits, [params()] * 2, [0.0, math.nextafter(1.0, 0.0)])
    assert tokens == [40, 41]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_an_error(bad: float) -> None:
    with pytest.raises(FloatingPointError):
        Sampler().draw(torch.tensor([[0.0, bad]]), [params()], [0.5])
