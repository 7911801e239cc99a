"""A model from scratch: its tokenizer loses nothing, its seed fixes its weights, it saves and loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from whetstone.data.micro import micro_examples, micro_problems
from whetstone.engine.loading import load_model, save_model
from whetstone.engine.scratch import build_scratch, build_tokenizer
from whetstone.engine.settings import ScratchModel

SMALL = ScratchModel(hidden_size=32, layers=1, heads=2, kv_heads=1, intermediate_size=48, vocab_size=320)


def texts(seed: int = 0) -> list[str]:
    return [prompt + reply for prompt, reply in micro_examples(300, seed, 0.7)]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(texts(), 320)


ascii_text = st.text(st.characters(max_codepoint=127), max_size=80)


@given(text=ascii_text | st.text(max_size=40).filter(lambda t: "⟨" not in t))
@settings(max_examples=200, deadline=None)
def test_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.eos_token_id not in ids


def test_reference_programs_survive_the_tokenizer(tokenizer: Any) -> None:
    for problem in micro_problems("heldout"):
        source = problem.references[0].source
        assert tokenizer.decode(tokenizer.encode(source)) == source


@given(prompt=ascii_text, reply=ascii_text)
@settings(max_examples=50, deadline=None)
def test_a_digit_is_a_token_of_its_own(tokenizer: Any, prompt: str, reply: str) -> None:
    for token in tokenizer.convert_ids_to_tokens(tokenizer.encode(prompt + "7" + reply)):
        assert token.isdigit() <= (len(token) == 1)


def test_the_vocabulary_keeps_its_bound_and_merges_words(tokenizer: Any) -> None:
    assert len(tokenizer) <= 320
    assert len(tokenizer.encode("[x for x in xs]")) < len("[x for x in xs]") / 2


def test_a_seed_fixes_weights_and_merges_and_leaves_the_global_state_alone() -> None:
    torch.manual_seed(9)
    before = torch.get_rng_state()
    first, first_tokenizer = build_scratch(SMALL, texts(), seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(10)
    again, again_tokenizer = build_scratch(SMALL, texts(), seed=1)
    other, _ = build_scratch(SMALL, texts(), seed=2)
    weights, same, different = (m.state_dict() for m in (first, again, other))
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert not torch.equal(weights["model.embed_tokens.weight"], different["model.embed_tokens.weight"])
    assert first_tokenizer.backend_tokenizer.to_str() == again_tokenizer.backend_tokenizer.to_str()


def test_the_default_size_is_about_two_million() -> None:
    model, tokenizer = build_scratch(ScratchModel(), texts(), seed=0)
    assert 1.5e6 < sum(p.numel() for p in model.parameters()) < 2.5e6
    assert model.dtype == torch.float32
    assert isinstance(embeddings := model.get_input_embeddings(), torch.nn.Embedding)
    assert embeddings.num_embeddings == len(tokenizer)


def test_saved_and_loaded_it_is_the_same_model(tmp_path: Path) -> None:
    model, tokenizer = build_scratch(SMALL, texts(), seed=1)
    save_model(model, tokenizer, tmp_path / "tiny")
    loaded = load_model(str(tmp_path / "tiny"), dtype="float32", device="cpu")
    text = "# first 3 of xs\ndef f(xs):\n    return xs[:3]"
    ids = tokenizer.encode(text)
    assert loaded.tokenizer.encode(text) == ids
    assert loaded.tokenizer.decode(ids) == text
    assert loaded.tokenizer.eos_token_id == loaded.model.config.eos_token_id == tokenizer.eos_token_id
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([ids])).logits
        torch.testing.assert_close(loaded.model(input_ids=torch.tensor([ids])).logits, expected)


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ({"vocab_size": 100}, "vocab_size"),
        ({"hidden_size": 30, "heads": 4}, "hidden_size"),
        ({"heads": 6, "kv_heads": 4}, "kv_heads"),
    ],
)
def test_sizes_that_do_not_fit_are_named(sizes: dict[str, int], names: str) -> None:
    with pytest.raises(ValidationError, match=names):
        ScratchModel(**sizes)
