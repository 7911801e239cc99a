"""Models, batches and clocks that several sections share."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.device_day.context import SectionContext
from benchmarks.trl_step import problems, question
from whetstone.algorithm.named import algorithm_named
from whetstone.core.sample import Batch, Group, Sample
from whetstone.engine.loading import LoadedModel, load_model
from whetstone.engine.scratch import build_tokenizer
from whetstone.trainer import attention_kernels
from whetstone.trainer.attention_kernels import CANDIDATES, KernelCandidate, Layer, select
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

# Shapes of models: those of SmolLM2-135M and Qwen2.5-1.5B, and one for the rehearsal.
SMOL: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
}
LARGE: dict[str, Any] = {
    "model_type": "qwen2",
    "vocab_size": 151_936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "max_position_embeddings": 65_536,
}
TINY: dict[str, Any] = {
    "model_type": "qwen2",
    "vocab_size": 2048,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
}

# Tokens of the prompt before a long reply.
_PROMPT = 64

BLOCKS = "blocks"


def random_model(shape: dict[str, Any], device: torch.device, dtype: torch.dtype) -> Any:
    """Return a model with seeded random weights; no token ends its replies."""
    ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = AutoConfig.for_model(**shape, **ends, tie_word_embeddings=True)
    torch.manual_seed(0)
    # On the device, because a CPU takes a minute for the weights of a large model.
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.generation_config.eos_token_id = None
    return model.eval()


def large_shape(context: SectionContext) -> dict[str, Any]:
    """Return the shape of the large model, or that of the rehearsal."""
    return TINY if context.small else LARGE


def random_loaded(context: SectionContext, shape: dict[str, Any], *, ends: bool = False) -> LoadedModel:
    """Return a random model with a tokenizer of the shipped statements.

    ends: whether some tokens end a reply, so that lengths differ: one in 150, or one in 16 in the rehearsal.
    """
    model = random_model(shape, context.device, context.dtype)
    if ends:
        mean_length = 16 if context.small else 150
        model.generation_config.eos_token_id = list(range(mean_length, shape["vocab_size"], mean_length))
    tokenizer = build_tokenizer([question(problem) for problem in problems(200)], 1024)
    # A token of the tokenizer's own would end replies too, but only there.
    tokenizer.eos_token = None
    return LoadedModel(model, tokenizer, "random weights")


def trained_or_random(
    context: SectionContext, *, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> LoadedModel:
    """Return the trained model if there is one, else a random one of the same shape."""
    device, dtype = device or context.device, dtype or context.dtype
    if context.model is not None:
        return load_model(str(context.model), dtype=dtype_name(dtype), device=str(device))
    loaded = random_loaded(context, TINY if context.small else SMOL, ends=True)
    return LoadedModel(loaded.model.to(device, dtype), loaded.tokenizer, loaded.source)


def new_trainer(model: Any, max_tokens: int, **settings: Any) -> Trainer:
    """Return a trainer with DAPO's loss. The engine's log-probs are reported, and never end it."""
    spec = algorithm_named("dapo", {"drop_zero_variance": False, "refill_rounds": 0, "overlong_buffer": 0})
    section = TrainerSection(max_engine_gap=0.0, lr=1e-6, **settings)
    return Trainer(model, spec, section, temperature=1.0, max_tokens=max_tokens)


def random_batch(vocabulary: int, groups: int, replies: int, tokens: int) -> Batch:
    """Return groups of replies of ``tokens`` random tokens; every second reply has a reward."""
    draw = random.Random(0)

    def ids(count: int) -> list[int]:
        return [draw.randrange(vocabulary) for _ in range(count)]

    return Batch(
        [
            Group(str(number), ids(_PROMPT), [_sample(ids(tokens), float(i % 2)) for i in range(replies)])
            for number in range(groups)
        ]
    )


def long_batch(vocabulary: int, tokens: int) -> Batch:
    """Return one group whose micro-batch has ``tokens`` input tokens, in one sequence.

    Its second reply, of one token, adds none, and only gives the first one an advantage.
    """
    [group] = random_batch(vocabulary, 1, 1, tokens - _PROMPT + 1).groups
    return Batch([Group("long", group.prompt_ids, [*group.samples, _sample([0], 1.0)])])


def _sample(ids: list[int], reward: float) -> Sample:
    # Of other weights than the trainer's, because no engine sampled them.
    return Sample(ids, [-1.0] * len(ids), [-1] * len(ids), "stop", "", reward=reward)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without that of torch."""
    return str(dtype).removeprefix("torch.")


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


def seconds_of(device: torch.device, work: Callable[[], object], rounds: int = 1) -> float:
    """Return the median wall time of ``rounds`` calls, each with all work of the device."""
    spent: list[float] = []
    for _ in range(rounds):
        synchronize(device)
        began = time.perf_counter()
        work()
        synchronize(device)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


@contextmanager
def only_kernel(candidate: KernelCandidate | None) -> Generator[None]:
    """A context in which packed attention on a device uses this kernel alone, or blocks."""
    every = list(CANDIDATES)
    CANDIDATES[:] = [] if candidate is None else [candidate]
    select.cache_clear()
    try:
        yield
    finally:
        CANDIDATES[:] = every
        select.cache_clear()


def layer_of(model: Any) -> Layer:
    """Return what the attention of a model without windows and sinks needs."""
    config = model.config.get_text_config()
    heads: int = config.num_attention_heads
    width = cast("int | None", getattr(config, "head_dim", None)) or config.hidden_size // heads
    return Layer(model.device, model.dtype, heads, config.num_key_value_heads, width, 0.0, False, False)


def kernel_name(layer: Layer) -> str:
    """Return the name of the kernel that packed attention selects for a layer."""
    if layer.device.type == "cpu":
        return BLOCKS
    chosen = select(layer)
    names = [name for name, kernel, _ in attention_kernels.CANDIDATES if kernel is chosen]
    return names[0] if names else BLOCKS


def usable_kernels(layer: Layer) -> tuple[list[KernelCandidate], dict[str, str]]:
    """Return the kernels that can compute a layer, and for each other one why it cannot."""
    usable: list[KernelCandidate] = []
    reasons: dict[str, str] = {}
    for candidate in CANDIDATES:
        reason = candidate.obstacle(layer)
        if reason is None:
            usable.append(candidate)
        else:
            reasons[candidate.name] = reason
    return usable, reasons
