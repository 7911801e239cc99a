"""The speed and the size of versions of weights relative to what bounds them, as tables:

    .venv/bin/python -m benchmarks.weights --ratios

A full copy over loopback, from a server in another process to a replica that has none of it, beside BLAKE3
of the same bytes; the encoding of changes, with their checksums, beside a comparison and checksums; and the
bytes of changes beside their entropy by exponent. All with the default number of threads. The weights are
random bf16 (normal, deviation 0.04), and a change adds a normal number of deviation ``lr`` to the fp32 number
of which a weight is the rounding.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.weights import entropy_bytes
from whetstone.weights.manifest import digest
from whetstone.weights.publisher import VersionEncoder
from whetstone.weights.replica import WeightReplica
from whetstone.weights.settings import default_threads
from whetstone.weights.shards import elements_of, whole_tensors
from whetstone.weights.tcp_client import TcpSource
from whetstone.weights.tcp_server import TcpServer
from whetstone.weights.version_store import VersionStore

_ELEMENTS = 1 << 23
_FULL_TENSORS, _DELTA_TENSORS = 48, 12
_REPEAT = 4
_RATES = (1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 1e-4)


def masters(tensors: int) -> dict[str, Tensor]:
    """Return random fp32 weights, of 16 MiB a tensor in bf16."""
    draw = torch.Generator().manual_seed(0)
    return {f"w{n}": 0.04 * torch.randn(_ELEMENTS, generator=draw) for n in range(tensors)}


def serve(connection: Any) -> None:
    """Serve a version in this process until the other side says something."""
    store = VersionStore()
    encoder = VersionEncoder("ratios", store)
    encoder.announce(encoder.begin(0, whole_tensors(masters(_FULL_TENSORS).items())).result())
    with TcpServer(store) as server:
        connection.send(server.address)
        connection.recv()
    encoder.close()


def seconds(work: Callable[[], object]) -> float:
    """Return the wall seconds of ``work``."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def print_full(threads: int) -> None:
    """Print the speed of full copies."""
    held = {f"w{n}": torch.full((_ELEMENTS,), 0.5, dtype=torch.bfloat16) for n in range(_FULL_TENSORS)}
    size = 2 * _ELEMENTS * len(held)
    with ThreadPoolExecutor(threads) as pool:
        blocks = [elements_of(tensor) for tensor in held.values()]
        hashed = min(seconds(lambda: list(pool.map(digest, blocks))) for _ in range(_REPEAT))
    print(f"BLAKE3: {size / hashed / 1e9:.2f} GB/s with {threads} threads\n")
    print("| replica | first, GB/s | best, GB/s | best of BLAKE3 (at least 0.5) |\n" + "| --- " * 4 + "|")
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there,))
    server.start()
    try:
        address = here.recv()
        for copies, name in ((True, "copies"), (False, "in place")):
            took: list[float] = []
            for _ in range(_REPEAT):
                for tensor in held.values():
                    tensor.fill_(0.5)
                replica, source = WeightReplica(held, "ratios", copies=copies), TcpSource(address)
                [manifest] = source.plan(None)
                took.append(seconds(lambda r=replica, m=manifest, s=source: r.prepare(m, s.fetch).write()))
                source.close()
            first, best = (size / each / 1e9 for each in (took[0], min(took)))
            print(f"| {name} | {first:.2f} | {best:.2f} | **{hashed / min(took):.2f}** |", flush=True)
    finally:
        here.send("end")
        server.join(30)


def print_deltas(threads: int) -> None:
    """Print the speed and the size of changes at several rates."""
    columns = (
        "lr | changed | compare + checksum, ms | encode with checksum, ms "
        "| of compare + checksum (at most 1.5) | bytes | of entropy by exponent (at most 1.1)"
    )
    print(f"\n| {columns} |\n" + "| --- " * 7 + "|")
    before, draw = masters(_DELTA_TENSORS), torch.Generator().manual_seed(1)
    for lr in _RATES:
        after = {name: each + lr * torch.randn(each.shape, generator=draw) for name, each in before.items()}
        old, new = (
            {name: elements_of(each.bfloat16()) for name, each in of.items()} for of in (before, after)
        )

        def compare(name: str, old: dict[str, Any] = old, new: dict[str, Any] = new) -> tuple[int, bytes]:
            return int(np.count_nonzero(old[name] != new[name])), digest(new[name])

        with ThreadPoolExecutor(threads) as pool:
            least = min(seconds(lambda c=compare: list(pool.map(c, before))) for _ in range(_REPEAT))
        encoded, encode_s = None, 1e9
        for _ in range(_REPEAT):
            encoder = VersionEncoder("ratios", VersionStore(), threads=threads)
            for number, tensors in enumerate((before, after)):
                encoded = encoder.begin(number, whole_tensors(tensors.items())).result()
                encoder.announce(encoded)
            encoder.close()
            assert encoded is not None
            encode_s = min(encode_s, encoded.encode_s)
        assert encoded is not None
        assert encoded.delta is not None
        shard, words = encoded.delta, _ELEMENTS * len(before)
        _, entropy = entropy_bytes(old, new)
        print(
            f"| {lr:g} | {shard.changed / words:.2%} | {least * 1e3:.0f} | {encode_s * 1e3:.0f} "
            f"| **{encode_s / least:.2f}** | {shard.size:,} | **{shard.size / entropy:.3f}** |",
            flush=True,
        )


def print_ratios() -> None:
    """Print all tables."""
    threads = default_threads()
    print_full(threads)
    print_deltas(threads)
