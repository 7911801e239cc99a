"""Small tensors need no second thread, and the cores are shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.weights.published import Side, Trained


@pytest.fixture
def side() -> Iterator[Side]:
    found = Side(Trained())
    yield found
    found.publisher.close()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
