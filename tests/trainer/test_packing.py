"""Packing loses nothing, respects its limit, and changes no number."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.tiny_models import VOCABULARY, tiny_llama
from whetstone.core.errors import UserError
from whetstone.trainer.forward import Forward
from whetstone.trainer.log_probs import selected_log_probs
from whetstone.trainer.packing import PromptReplies, pack
from whetstone.trainer.segments import Segment

ids = st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=7)
reply = st.lists(st.integers(3, VOCABULARY - 1), min_size=0, max_size=7)
groups = st.lists(
    st.builds(PromptReplies, ids, st.lists(reply, min_size=1, max_size=5)), min_size=1, max_size=4
)
layouts = st.sampled_from(["shared_prefix", "padded"])


def seen_from(micro, row, place):
    """Bool, [length]: what the token at a place of a row sees."""
    columns = torch.arange(micro.input_ids.shape[1])
    if micro.attention_mask.dim() != 4:
        return micro.attention_mask[row] & (columns <= place)
    (run,) = [
        run
        for run in (Segment(*fields) for fields in micro.attention_mask[0, 0].tolist())
        if run.start <= place < run.start + run.length
    ]
    prefix = (columns >= run.prefix) & (columns < run.prefix + run.prefix_length)
    return prefix | ((columns >= run.start) & (columns <= place))


def contexts(micro):
    """For each predicted token: what its predicting position sees, in order of position."""
    length = micro.input_ids.shape[1]
    for predictor, target, token in zip(micro.predictors, micro.targets, micro.tokens, strict=True):
        row, place = divmod(int(predictor), length)
        seen = seen_from(micro, row, place)
        positions = micro.position_ids[row][seen].tolist()
        assert positions == list(range(len(positions)))
        yield int(token), micro.input_ids[row][seen].tolist(), int(target)


@settings(deadline=None)
@given(groups, st.integers(1, 60), layouts)
def test_each_token_is_predicted_once_from_its_prompt_and_its_own_past(data, limit, layout):
    expected = []
    for group in data:
        for answer in group.replies:
            expected += [([*group.prompt_ids, *answer[:i]], token) for i, token in enumerate(answer)]
    found = {}
    for micro in pack(data, micro_batch_tokens=limit, layout=layout):
        for token, context, target in contexts(micro):
            assert token not in found
            found[token] = (context, target)
    assert [found[i] for i in range(len(expected))] == expected
    assert len(found) == len(expected)


@settings(deadline=None)
@given(groups, st.integers(1, 60), layouts)
def test_a_micro_batch_passes_its_limit_only_when_it_is_a_single_reply(data, limit, layout):
    for micro in pack(data, micro_batch_tokens=limit, layout=layout):
        if micro.input_ids.numel() > limit:
            assert micro.input_ids.shape[0] == 1
            assert (micro.predictors == micro.predictors[0]).sum() == 1


def test_the_prompt_is_computed_once_for_a_group():
    data = [PromptReplies(list(range(3, 23)), [[5, 6, 7]] * 8)]
    shared = pack(data, micro_batch_tokens=1000, layout="shared_prefix")
    padded = pack(data, micro_batch_tokens=1000, layout="padded")
    assert sum(m.input_ids.numel() for m in shared) == 20 + 8 * 2
    assert sum(m.input_ids.numel() for m in padded) == 8 * (20 + 2)


def test_micro_batches_are_full_and_without_padding():
    data = [PromptReplies([3] * 10, [[5] * (2 + i)] * 4) for i in range(12)]
    tokens = sum(10 + 4 * (1 + i) for i in range(12))
    packed = pack(data, micro_batch_tokens=100, layout="shared_prefix")
    assert sum(m.input_ids.numel() for m in packed) == tokens
    assert len(packed) == -(-tokens // 100)


@settings(max_examples=15, deadline=None)
@given(groups, st.integers(1, 60), layouts)
def test_packed_log_probs_equal_those_of_each_sequence_alone(data, limit, layout):
    model = tiny_llama()
    expected = []
    with torch.no_grad():
        for group in data:
            for answer in group.replies:
                if answer:
                    logits = model(torch.tensor([[*group.prompt_ids, *answer]])).logits[0].double() / 0.7
                    rows = logits.log_softmax(-1)[len(group.prompt_ids) - 1 : -1]
                    expected.append(rows.gather(1, torch.tensor(answer)[:, None])[:, 0])
    flat = torch.cat([torch.zeros(0, dtype=torch.float64), *expected])
    packed = pack(data, micro_batch_tokens=limit, layout=layout)
    found = Forward(model, temperature=0.7).log_probs(packed, len(flat))
    assert torch.allclose(found.double(), flat, atol=2e-5)


def test_layouts_agree_in_bfloat16():
    """As far as rounding goes: what both say is as far from the truth as bfloat16 is."""
    data = [
        PromptReplies([3, 4, 5, 6], [[7, 8, 9], [10], [11, 12]]),
        PromptReplies([13], [[14, 15, 16, 17, 18]]),
    ]
    exact = Forward(tiny_llama(), temperature=1.0)
    truth = exact.log_probs(exact.pack(data, 100), 11)
    forward = Forward(tiny_llama(torch.bfloat16), temperature=1.0)
    for layout in ("shared_prefix", "padded"):
        found = forward.log_probs(forward.pack(data, 100, layout), 11)
        assert torch.allclose(found, truth, atol=0.3)


def long_rope_llama():
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0, 3.0, 5.0, 9.0],
        "original_max_position_embeddings": 8,
    }
    return tiny_llama(rope_parameters=rope)


@pytest.mark.parametrize("layout", ["shared_prefix", "padded"])
def test_long_rope_predicts_each_token_as_its_own_past_alone_would(layout):
    """Rows of every length around the switch; a reply may begin before it and end beyond."""
    model = long_rope_llama()
    forward = Forward(model, temperature=0.7)
    assert forward.layout == "shared_prefix"
    data = [
        PromptReplies(
            list(range(3, 3 + prompt)), [[7 + i] * length for i, length in enumerate((1, 3, 12, 2, 0, 5))]
        )
        for prompt in (2, 7, 8, 9, 10, 30)
    ]
    expected = []
    with torch.no_grad():
        for group in data:
            for answer in group.replies:
                for place, token in enumerate(answer):
                    past = torch.tensor([[*group.prompt_ids, *answer[:place]]])
                    expected.append(float((model(past).logits[0, -1] / 0.7).log_softmax(-1)[token]))
    for limit in (1, 40, 4096):
        packed = forward.pack(data, limit, layout)
        found = forward.log_probs(packed, len(expected))
        assert found.tolist() == pytest.approx(expected, abs=2e-5)


def test_long_rope_gradients_are_those_of_every_token_alone():
    data = [PromptReplies([3, 4, 5], [[6] * 12, [7, 8], [9] * 20]), PromptReplies([5, 6], [[7]])]
    alone, packed = long_rope_llama(), long_rope_llama()
    for group in data:
        for answer in group.replies:
            for place, token in enumerate(answer):
                past = torch.tensor([[*group.prompt_ids, *answer[:place]]])
                alone(past).logits[0, -1].log_softmax(-1)[token].backward()
    forward = Forward(packed, temperature=1.0)
    for micro_batch in forward.pack(data, 4096):
        for scores in forward.scores(micro_batch):
            scores.log_probs.sum().backward()
    for one, other in zip(alone.parameters(), packed.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None  # noqa: PT018
        assert torch.allclose(one.grad, other.grad, atol=1e-4, rtol=1e-3)


def test_dynamic_rope_trains_up_to_the_length_where_it_would_stretch():
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    forward = Forward(tiny_llama(max_position_embeddings=16, rope_parameters=rope), temperature=1.0)
    assert forward.pack([PromptReplies([3] * 10, [[4] * 7, [5]])], 4096)
    with pytest.raises(UserError, match=r"17 tokens: rope of type `dynamic`.* beyond 16"):
        forward.pack([PromptReplies([3] * 10, [[4] * 8])], 4096)


def test_logits_changed_in_an_unknown_way_are_refused():
    model = tiny_llama()
    original = type(model).forward

    class Changed(type(model)):
        def forward(self, *args, **kwargs):
            output = original(self, *args, **kwargs)
            output.logits = output.logits * 3
            return output

    model.__class__ = Changed
    with pytest.raises(UserError, match="changes its logits"):
        Forward(model, temperature=1.0)


def test_selected_log_probs_and_their_gradient_equal_log_softmax():
    torch.manual_seed(0)
    logits = (torch.randn(5, 17, dtype=torch.float64) * 4).requires_grad_()
    targets = torch.tensor([0, 16, 3, 3, 9])
    upstream = torch.randn(5, dtype=torch.float64)
    found, entropies = selected_log_probs(logits, targets, 0.6)
    (gradient,) = torch.autograd.grad((found * upstream).sum(), logits)
    full = (logits / 0.6).log_softmax(-1)
    expected = full.gather(1, targets[:, None])[:, 0]
    (expected_gradient,) = torch.autograd.grad((expected * upstream).sum(), logits)
    assert torch.allclose(found, expected, atol=1e-12)
    assert torch.allclose(gradient, expected_gradient, atol=1e-12)
    assert torch.allclose(entropies, -(full.exp() * full).sum(-1), atol=1e-12)
