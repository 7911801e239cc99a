"""What runs in vLLM's workers, on a model that joins, shards, pads and transposes weights as vLLM does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from whetstone.engine.served.vllm_worker import POSITIONS, VALUES, WeightWriter, mapped_file

ROWS, COLUMNS = 6, 8


class ServedModel:
    """A worker's part (the second of two) of a model of three tensors."""

    def __init__(self) -> None:
        self.joined = torch.zeros(2 * ROWS, COLUMNS // 2)
        self.embedding = torch.zeros(ROWS + 2, COLUMNS)
        self.turned = torch.zeros(COLUMNS, ROWS // 2)
        self.change: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        for name, tensor in weights:
            tensor = self.change(name, tensor)
            if name in ("gate", "up"):
                half = COLUMNS // 2
                place = self.joined.narrow(0, 0 if name == "gate" else ROWS, ROWS)
                place.copy_(tensor.narrow(1, half, half))
            elif name == "embedding":
                self.embedding[:ROWS].copy_(tensor)
                self.embedding[ROWS:].fill_(0)
            elif name == "turned":
                self.turned.copy_(tensor.narrow(0, ROWS // 2, ROWS // 2).t())

    def state(self) -> list[Tensor]:
        return [each.clone() for each in (self.joined, self.embedding, self.turned)]


def worker_of(model: ServedModel) -> WeightWriter:
    worker: Any = WeightWriter()
    worker.model_runner = SimpleNamespace(get_model=lambda: model)
    return worker


def weights(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(seed)
    names = ("gate", "up", "embedding", "turned")
    return {name: torch.randn(ROWS, COLUMNS, generator=made).to(dtype) for name in names}


def folder_of(folder: Path, tensors: dict[str, Tensor]) -> str:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def loaded(tensors: dict[str, Tensor]) -> ServedModel:
    model = ServedModel()
    for name in ("joined", "embedding", "turned"):
        setattr(model, name, getattr(model, name).to(tensors["gate"].dtype))
    model.load_weights(tensors.items())
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
def test_changes_and_whole_weights_lead_to_the_model_that_a_load_gives(
    share: float, dtype: torch.dtype, tmp_path: Path
) -> None:
    first, folder = weights(0, dtype), tmp_path
    model, other = loaded(first), loaded(first)
    by_changes, by_copies = worker_of(model), worker_of(other)
    where = folder_of(folder, first)
    assert by_changes.whetstone_open(where) == by_copies.whetstone_open(where) == {}
    new, changes = weights(1, dtype), dict[str, Tensor]()
    new["up"][0, 5], new["turned"][4, 3] = float("nan"), -0.0
    made = torch.Generator().manual_seed(2)
    for name, tensor in new.items():
        changed = torch.rand(ROWS * COLUMNS, generator=made) < share
        changed[5] = True
        new[name] = torch.where(changed.view(ROWS, COLUMNS), tensor, first[name])
        changes[POSITIONS + name] = changed.nonzero()[:, 0].int()
        integers = torch.int16 if dtype == torch.bfloat16 else torch.int32
        changes[VALUES + name] = new[name].view(-1).view(integers)[changed]
    save_file(changes, folder / "changes")
    assert by_changes.whetstone_write(where, str(folder / "changes")) == {}
    # The file is written in place, as the trainer does.
    for name, tensor in mapped_file(folder / "model.safetensors", writable=True).items():
        tensor.copy_(new[name])
    assert by_copies.whetstone_write(where, "") == {}
    for expected, changed, copied in zip(loaded(new).state(), model.state(), other.state(), strict=True):
        integers = torch.int16 if dtype == torch.bfloat16 else torch.int32
        assert torch.equal(expected.view(integers), changed.view(integers))
        assert torch.equal(expected.view(integers), copied.view(integers))


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    model = loaded(weights(0))
    worker = worker_of(model)
    assert worker.whetstone_open(folder_of(tmp_path, weights(0))) == {}
    (tmp_path / "model.safetensors").unlink()
    assert worker.whetstone_write(folder_of(tmp_path, weights(3)), "") == {}
    assert all(torch.equal(a, b) for a, b in zip(model.state(), loaded(weights(3)).state(), strict=True))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda name, tensor: tensor * 2 if name == "up" else tensor, "`up` is transformed"),
        (lambda name, tensor: tensor.double() if name == "up" else tensor, "`up` is transformed"),
        (lambda name, tensor: tensor.flip(0) if name == "turned" else tensor, "`turned` is transformed"),
    ],
)
def test_a_model_that_transforms_its_weights_is_not_written_in_place(
    change: Callable[[str, Tensor], Tensor], said: str, tmp_path: Path
) -> None:
    model = loaded(weights(0))
    model.change = change
    before = model.state()
    assert said in worker_of(model).whetstone_open(folder_of(tmp_path, weights(0)))["error"]
    assert all(torch.equal(a, b) for a, b in zip(before, model.state(), strict=True))


def test_weights_that_the_model_has_changed_or_lacks_are_named(tmp_path: Path) -> None:
    model = loaded(weights(0))
    model.turned[1, 2] += 1  # as a kernel does that shuffles its weights after they are loaded
    where = folder_of(tmp_path, weights(0))
    assert "`turned` is not in the model as it is" in worker_of(model).whetstone_open(where)["error"]
    more = folder_of(tmp_path, weights(0) | {"extra": torch.ones(3)})
    assert "`extra` is copied nowhere" in worker_of(loaded(weights(0))).whetstone_open(more)["error"]


def test_copies_are_made_again_after_the_places_are_found(tmp_path: Path) -> None:
    assert worker_of(loaded(weights(0))).whetstone_open(folder_of(tmp_path, weights(0))) == {}
    target = torch.zeros(2)
    target.copy_(torch.ones(2))
    assert target.tolist() == [1, 1]
