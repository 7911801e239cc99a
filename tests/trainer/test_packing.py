"""Packing loses nothing, respects its limit, and changes no number."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import VOCABULARY, tiny_llama

from whetstone.errors import UserError
from whetstone.trainer.forward import (
    Forward,
    attention_break_even,
    selected_log_probs,
    shared_prefix_obstacle,
)
from whetstone.trainer.packing import Prompted, pack

ids = st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=7)
reply = st.lists(st.integers(3, VOCABULARY - 1), min_size=0, max_size=7)
groups = st.lists(st.builds(Prompted, ids, st.lists(reply, min_size=1, max_size=5)), min_size=1, max_size=4)
layouts = st.sampled_from(["shared_prefix", "padded"])
break_evens = st.sampled_from([0.5, 10.0, float("inf")])


def contexts(micro):
    """For each predicted token: what its predicting position sees, in order of position."""
    length = micro.input_ids.shape[1]
    for predictor, target, token in zip(micro.predictors, micro.targets, micro.tokens, strict=True):
        row, place = divmod(int(predictor), length)
        if micro.attention_mask.dim() == 4:
            seen = micro.attention_mask[row, 0, place]
        else:
            seen = micro.attention_mask[row] & (torch.arange(length) <= place)
        positions = micro.position_ids[row][seen].tolist()
        assert positions == list(range(len(positions)))
        yield int(token), micro.input_ids[row][seen].tolist(), int(target)


@settings(deadline=None)
@given(groups, st.integers(1, 60), layouts, break_evens)
def test_each_token_is_predicted_once_from_its_prompt_and_its_own_past(data, limit, layout, break_even):
    expected = []
    for group in data:
        for answer in group.replies:
            expected += [([*group.prompt_ids, *answer[:i]], token) for i, token in enumerate(answer)]
    found = {}
    for micro in pack(data, micro_batch_tokens=limit, layout=layout, break_even=break_even):
        for token, context, target in contexts(micro):
            assert token not in found
            found[token] = (context, target)
    assert [found[i] for i in range(len(expected))] == expected
    assert len(found) == len(expected)


@settings(deadline=None)
@given(groups, st.integers(1, 60), layouts, break_evens)
def test_a_micro_batch_passes_its_limit_only_when_it_is_a_single_reply(data, limit, layout, break_even):
    for micro in pack(data, micro_batch_tokens=limit, layout=layout, break_even=break_even):
        if micro.input_ids.numel() > limit:
            assert micro.input_ids.shape[0] == 1
            assert (micro.predictors == micro.predictors[0]).sum() == 1


def test_the_prompt_is_computed_once_for_a_group():
    data = [Prompted(list(range(3, 23)), [[5, 6, 7]] * 8)]
    shared = pack(data, micro_batch_tokens=1000, layout="shared_prefix")
    padded = pack(data, micro_batch_tokens=1000, layout="padded")
    assert sum(m.input_ids.numel() for m in shared) == 20 + 8 * 2
    assert sum(m.input_ids.numel() for m in padded) == 8 * (20 + 2)


def test_long_rows_are_split_where_attention_would_cost_more_than_the_prompt():
    data = [Prompted([3, 4], [[5] * 50] * 4)]
    rows = [
        m.input_ids.shape for m in pack(data, micro_batch_tokens=1000, layout="shared_prefix", break_even=1)
    ]
    assert sum(shape[0] for shape in rows) == 4


@settings(max_examples=15, deadline=None)
@given(groups, st.integers(1, 60), layouts, break_evens)
def test_packed_log_probs_equal_those_of_each_sequence_alone(data, limit, layout, break_even):
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
    packed = pack(data, micro_batch_tokens=limit, layout=layout, break_even=break_even)
    found = Forward(model, temperature=0.7).log_probs(packed, len(flat))
    assert torch.allclose(found.double(), flat, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_layouts_agree_for_each_supported_family(family, attention, dtype):
    import transformers

    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
    )
    config._attn_implementation = attention
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype).eval()
    forward = Forward(model, temperature=1.0)
    assert forward.layout == "shared_prefix"
    data = [Prompted([3, 4, 5, 6], [[7, 8, 9], [10], [11, 12]]), Prompted([13], [[14, 15, 16, 17, 18]])]
    shared = forward.log_probs(pack(data, micro_batch_tokens=100, layout="shared_prefix"), 11)
    padded = forward.log_probs(pack(data, micro_batch_tokens=100, layout="padded"), 11)
    assert torch.allclose(shared, padded, atol=3e-5 if dtype == torch.float32 else 0.3)


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
        Prompted(
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
    data = [Prompted([3, 4, 5], [[6] * 12, [7, 8], [9] * 20]), Prompted([5, 6], [[7]])]
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
        assert torch.allclose(one.grad, other.grad, atol=1e-4, rtol=1e-3)


def test_dynamic_rope_trains_up_to_the_length_where_it_would_stretch():
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    forward = Forward(tiny_llama(max_position_embeddings=16, rope_parameters=rope), temperature=1.0)
    assert forward.pack([Prompted([3] * 10, [[4] * 7, [5]])], 4096)
    with pytest.raises(UserError, match=r"17 tokens: rope of type `dynamic`.* beyond 16"):
        forward.pack([Prompted([3] * 10, [[4] * 8])], 4096)


@pytest.mark.parametrize("kind", ["llama4_text", "mamba"])
def test_other_architectures_are_refused_with_the_names_of_those_that_train(kind):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        kind, vocab_size=61, hidden_size=32, num_hidden_layers=2, pad_token_id=0, num_local_experts=2
    )
    with pytest.raises(UserError, match=rf"{kind}: layers of kind .*Qwen3"):
        Forward(AutoModelForCausalLM.from_config(config), temperature=1.0)


def test_models_that_cannot_share_a_prefix_say_why():
    from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

    small = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    assert shared_prefix_obstacle(tiny_llama()) is None
    windowed = MistralForCausalLM(MistralConfig(**small, **heads, sliding_window=4))
    assert "window of 4 tokens" in str(shared_prefix_obstacle(windowed))
    full = MistralForCausalLM(MistralConfig(**small, **heads, sliding_window=None))
    assert shared_prefix_obstacle(full) is None
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_embd=32, n_layer=1, n_head=4)).eval()
    assert "gpt2" in str(shared_prefix_obstacle(gpt))
    assert Forward(gpt, temperature=1.0).layout == "padded"


def test_a_softcap_and_a_scale_on_the_logits_are_honoured():
    from transformers import Gemma2Config, Gemma2ForCausalLM, GraniteConfig, GraniteForCausalLM

    small = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
    }
    torch.manual_seed(0)
    for model in (
        Gemma2ForCausalLM(Gemma2Config(**small, head_dim=8, final_logit_softcapping=2.0)).eval(),
        GraniteForCausalLM(GraniteConfig(**small, logits_scaling=4.0)).eval(),
    ):
        forward = Forward(model, temperature=1.0)
        packed = pack([Prompted([3, 4], [[5, 6, 7]])], micro_batch_tokens=99, layout=forward.layout)
        with torch.no_grad():
            rows = model(torch.tensor([[3, 4, 5, 6, 7]])).logits[0].log_softmax(-1)[1:4]
        expected = rows.gather(1, torch.tensor([[5], [6], [7]]))[:, 0]
        assert torch.allclose(forward.log_probs(packed, 3), expected, atol=1e-5)


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


def test_break_even_counts_the_layers_and_not_the_embeddings():
    model = tiny_llama()
    layers = sum(p.numel() for n, p in model.named_parameters() if "embed" not in n)
    assert attention_break_even(model) == layers / (2 * 32 * 2)
    untied = tiny_llama(tie_word_embeddings=False)
    assert attention_break_even(untied) == attention_break_even(model)
