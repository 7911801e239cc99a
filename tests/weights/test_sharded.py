"""A trainer of two ranks, sharded by FSDP2: each encodes and serves its rows, and a replica has them all."""

from __future__ import annotations

import os
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.weights.published import follow
from whetstone.engine.weights import DeferredWeight
from whetstone.weights.publisher import VersionPublisher
from whetstone.weights.replica import WeightReplica
from whetstone.weights.settings import WeightsSection
from whetstone.weights.shared_folder import FolderSource
from whetstone.weights.tcp_client import TcpSource

pytestmark = pytest.mark.process


def model() -> nn.Module:
    """Rows that two ranks divide unevenly, and a tensor of one row."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 33), nn.LayerNorm(33), nn.Linear(33, 1))


def step(parameter: torch.Tensor) -> None:
    parameter.mul_(1.01)


class Crew:
    """Two ranks; no pickle."""

    size = 2
    local_size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def gather(self, data: bytes, description: str) -> list[bytes]:
        sent = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        size = torch.tensor([len(sent)])
        sizes = [torch.zeros_like(size) for _ in range(2)]
        dist.all_gather(sizes, size)
        most = max(int(s) for s in sizes)
        room = [torch.empty(most, dtype=torch.uint8) for _ in range(2)]
        dist.all_gather(room, torch.cat([sent, sent.new_zeros(most - len(sent))]))
        return [bytes(r[: int(s)].numpy()) for r, s in zip(room, sizes, strict=True)]


def rank(number: int, folder: Path, told: int, by: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    trained = model()
    trained.register_buffer("scale", torch.tensor(0.5))
    adapted = torch.arange(12.0).reshape(3, 4)
    fully_shard(trained, mesh=mesh)
    settings = WeightsSection.model_validate({"by": by})
    where = folder / "versions"
    with VersionPublisher(
        "two ranks", settings, dtype=torch.bfloat16, folder=where, ranks=Crew(number)
    ) as published:
        for version in range(2):
            weights = [(n, t.detach()) for n, t in trained.state_dict().items()]
            made = adapted + version
            weights.append(("adapted", DeferredWeight(made.shape, made.to)))
            offer = published.publish(version, weights).result()
            if number == 0:
                os.write(told, f"{offer.version} {offer.url}\n".encode())
            # The replica has this version before there is another.
            while not (folder / f"has-{version}").exists():
                threading.Event().wait(0.02)
            with torch.no_grad():
                for parameter in trained.parameters():
                    step(parameter.to_local() if isinstance(parameter, DTensor) else parameter)
    dist.destroy_process_group()


def forked(number: int, folder: Path, told: int, by: str) -> int:
    child = os.fork()
    if not child:
        status = 1
        try:
            torch.set_num_threads(1)
            rank(number, folder, told, by)
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    return child


@pytest.mark.parametrize("by", ["tcp", "folder"])
def test_each_rank_encodes_its_rows_and_a_replica_has_them_all(tmp_path: Path, by: str) -> None:
    reading, writing = os.pipe()
    ranks = [forked(number, tmp_path, writing, by) for number in range(2)]
    os.close(writing)
    wanted: dict[str, Any] = {n: t.detach().clone() for n, t in model().named_parameters()}
    wanted |= {"scale": torch.tensor(0.5), "adapted": torch.arange(12.0).reshape(3, 4)}
    held = {name: torch.zeros_like(tensor, dtype=torch.bfloat16) for name, tensor in wanted.items()}
    replica = WeightReplica(held, "two ranks")
    with os.fdopen(reading) as told:
        for version in range(2):
            number, _, where = told.readline().strip().partition(" ")
            kind, _, place = where.partition(":")
            assert (int(number), kind) == (version, by)
            source = TcpSource(place) if by == "tcp" else FolderSource(Path(place))
            [applied] = follow(replica, source)
            assert (applied.manifest.number, applied.manifest.base is None) == (version, version == 0)
            assert [len(shard.parts) for shard in applied.manifest.shards] == [1, 1]
            for name, tensor in wanted.items():
                assert torch.equal(held[name], tensor.bfloat16()), name
                if name == "adapted":
                    tensor += 1
                elif name != "scale":
                    step(tensor)
            source.close()
            (tmp_path / f"has-{version}").touch()
    assert [os.waitpid(child, 0)[1] for child in ranks] == [0, 0]
