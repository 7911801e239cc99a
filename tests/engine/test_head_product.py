"""The head of a decoding step in pieces, against one product."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn

from tests.engine.tiny_models import tiny_model
from whetstone.engine.head_product import head_in_pieces


class Head(nn.Module):
    """A model that is only a head."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.head = head

    def get_output_embeddings(self) -> nn.Linear:
        return self.head


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("vocabulary", [1, 2047, 2048, 2049, 6000])
def test_pieces_give_the_logits_of_one_product(vocabulary: int, bias: bool) -> None:
    head = nn.Linear(24, vocabulary, bias=bias)
    model = Head(head)
    values = torch.randn(3, 2, 24)
    with torch.inference_mode():
        expected = head(values)
        with head_in_pieces(model):
            found = head(values)
            # Twice the weights: the pieces read them at each call.
            head.weight.mul_(2)
            doubled = head(values)
        assert torch.allclose(found, expected, atol=1e-6)
        assert torch.allclose(doubled, head(values), atol=1e-5)


def test_the_head_is_as_before_afterwards() -> None:
    model = tiny_model("llama")
    head = model.get_output_embeddings()
    with suppress(ValueError), head_in_pieces(model):
        assert "forward" in vars(head)
        raise ValueError
    assert "forward" not in vars(head)


class Doubled(nn.Linear):
    """A head that does more than a product."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


@pytest.mark.parametrize(
    "head", [Doubled(8, 30), nn.Linear(8, 30, dtype=torch.bfloat16), nn.Linear(8, 30, device="meta")]
)
def test_other_heads_are_left_alone(head: Any) -> None:
    with head_in_pieces(Head(head)):
        assert "forward" not in vars(head)
