"""A tiny model from scratch: fresh Llama-shaped weights and a byte-level BPE tokenizer.

Both are ordinary Hugging Face objects, so that everything that takes a trained model takes this
one too, in memory or saved with ``save_pretrained``.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from whetstone.engine.settings import ScratchModel

# Outside ASCII, so that no program in ASCII can spell a special token and end its own reply.
EOS = "⟨eos⟩"
PAD = "⟨pad⟩"


def build_scratch(
    settings: ScratchModel, texts: Iterable[str], seed: int
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A model with seeded fp32 weights, and a tokenizer whose merges are learned from ``texts``.

    The same arguments give the same weights and merges. torch's global random state is left as it
    was.
    """
    tokenizer = build_tokenizer(texts, settings.vocab_size)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        max_position_embeddings=settings.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.backend_tokenizer.token_to_id(EOS),
        pad_token_id=tokenizer.backend_tokenizer.token_to_id(PAD),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    return model.float().eval(), tokenizer


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of at most ``vocab_size`` tokens, with an end and a padding token.

    Every byte is a token, so that any text survives encoding and decoding.
    """
    tokenizer = Tokenizer(models.BPE())
    # A digit is one token wherever it stands, so that a number of the statement is copied, not translated.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        # The decoder is exact; "cleaning" would take blanks away from programs.
        clean_up_tokenization_spaces=False,
    )
