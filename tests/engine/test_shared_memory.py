"""The weights of a server on this machine are in memory once: in the files that the server reads."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.engine.tiny_models import byte_tokenizer, tiny_model
from tests.weights.published import StoreSource, publish
from whetstone.engine.served.model_folders import ModelFolder
from whetstone.engine.weights import folder_weights
from whetstone.weights.publisher import VersionEncoder
from whetstone.weights.replica import WeightReplica, published_tensors
from whetstone.weights.version_store import VersionStore


def test_a_replica_writes_a_full_version_into_the_files_without_a_copy_in_memory(tmp_path: Path) -> None:
    model, trained = tiny_model("llama"), tiny_model("llama")
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.25)
    folder = ModelFolder(model, byte_tokenizer(), str(tmp_path))
    files = folder.files().folder
    mapped = [
        tuple(int(end, 16) for end in line.split()[0].split("-"))
        for line in Path("/proc/self/maps").read_text().splitlines()
        if str(files) in line
    ]
    for parameter in model.parameters():
        first = parameter.data_ptr()
        last = first + parameter.numel() * parameter.element_size()
        assert any(start <= first and last <= end for start, end in mapped)
    store = VersionStore()
    encoder = VersionEncoder("llama", store, dtype=None)
    publish(encoder, 1, dict(trained.named_parameters()))
    encoder.close()
    replica, source = WeightReplica(published_tensors(model), "llama", copies=True), StoreSource(store)
    prepared = replica.prepare(source.plan(None)[0], source.fetch)
    wanted = dict(trained.named_parameters())
    for name, tensor in folder_weights(files):
        assert torch.equal(tensor, wanted[name])
    assert prepared.changed_elements == sum(each.numel() for each in wanted.values())
    folder.close()
