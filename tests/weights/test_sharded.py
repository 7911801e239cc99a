"""A trainer of two ranks, sharded by FSDP2: each encodes and serves its rows, and a replica has them all."""

from __future__ import annotations

import os
import threading
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from published import follow
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from whetstone.weights.manifest import packed, unpacked
from whetstone.weights.pieces import shards
from whetstone.weights.publish import Encoded, Publisher
from whetstone.weights.replica import Replica
from whetstone.weights.shelf import Shelf
from whetstone.weights.tcp_client import TcpSource
from whetstone.weights.tcp_server import TcpServer


def model() -> nn.Module:
    """Rows that two ranks divide unevenly, and a tensor of one row."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 33), nn.LayerNorm(33), nn.Linear(33, 1))


def step(parameter: torch.Tensor) -> None:
    parameter.mul_(1.01)


def rank(number: int, folder: Path, told: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    trained = model()
    trained.register_buffer("scale", torch.tensor(0.5))
    fully_shard(trained, mesh=mesh)
    shelf = Shelf()
    with TcpServer(shelf) as server:
        publisher = Publisher("two ranks", shelf, address=server.address if number else "")
        for version in range(2):
            weights = [(n, t.detach()) for n, t in trained.state_dict().items()]
            encoded = publisher.begin(version, shards(weights, number)).result()
            everywhere = gathered(packed(encoded))
            if number == 0:
                publisher.announce(encoded, [unpacked(everywhere[1], Encoded, 1 << 20)])
                os.write(told, f"{server.address}\n".encode())
            # The replica has this version before there is another.
            while not (folder / f"has-{version}").exists():
                threading.Event().wait(0.02)
            with torch.no_grad():
                for parameter in trained.parameters():
                    step(parameter.to_local() if isinstance(parameter, DTensor) else parameter)
    dist.destroy_process_group()


def gathered(data: bytes) -> list[bytes]:
    """The bytes of each rank, on every rank; no pickle."""
    mine = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    size = torch.tensor([len(mine)])
    sizes = [torch.zeros_like(size) for _ in range(2)]
    dist.all_gather(sizes, size)
    most = max(int(s) for s in sizes)
    room = [torch.empty(most, dtype=torch.uint8) for _ in range(2)]
    dist.all_gather(room, torch.cat([mine, mine.new_zeros(most - len(mine))]))
    return [bytes(r[: int(s)].numpy()) for r, s in zip(room, sizes, strict=True)]


def forked(number: int, folder: Path, told: int) -> int:
    child = os.fork()
    if not child:
        status = 1
        try:
            torch.set_num_threads(1)
            rank(number, folder, told)
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    return child


def test_each_rank_encodes_and_serves_its_rows(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    ranks = [forked(number, tmp_path, writing) for number in range(2)]
    os.close(writing)
    wanted: dict[str, Any] = {n: t.detach().clone() for n, t in model().named_parameters()}
    wanted["scale"] = torch.tensor(0.5)
    held = {name: torch.zeros_like(tensor, dtype=torch.bfloat16) for name, tensor in wanted.items()}
    replica = Replica(held, "two ranks")
    with os.fdopen(reading) as told:
        for version in range(2):
            source = TcpSource(told.readline().strip())
            [applied] = follow(replica, source)
            assert (applied.manifest.number, applied.manifest.base is None) == (version, version == 0)
            assert len(applied.manifest.shards) == 2
            for name, tensor in wanted.items():
                assert torch.equal(held[name], tensor.bfloat16()), name
                if name != "scale":
                    step(tensor)
            source.close()
            (tmp_path / f"has-{version}").touch()
    assert [os.waitpid(child, 0)[1] for child in ranks] == [0, 0]
