"""Fixtures of engines: tiny models and a byte tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.engine.tiny_models import byte_tokenizer, tiny_model


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """The models are too small for two threads, and the cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def build_model() -> Callable[..., Any]:
    """build_model(architecture, seed=0, dtype=float32) -> a model with random weights."""
    return tiny_model


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """See ``byte_tokenizer``."""
    return byte_tokenizer()
