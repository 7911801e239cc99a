"""Versions of weights after real optimizer steps: bytes, CPU time, memory, seconds over links, as tables.

    .venv/bin/python benchmarks/weights.py --model models/SmolLM2-135M-Instruct --steps 4
    .venv/bin/python benchmarks/weights.py --steps 1 --rows 1 --lrs 1e-5 --links loopback --vllm PYTHON
    .venv/bin/python -m benchmarks.weights --ratios  # see weight_ratios.py

Each step is our AdamW on fp32 masters over a policy-gradient loss of ``--rows`` reference programs, with
advantages drawn at random, and the published bf16 weights are the masters rounded. Masters begin at a
random place within half a unit in the last place of their weight, as in the middle of a training: begun
on the grid, fewer weights would change. Rivals: each change as a position of 32 bits and a value of 16
(as AstraFlow sends it), and the XOR of old and new words through zstd, by tensor. Bounds: the entropy of
which words change and of their differences, for independent words, all alike or with the same exponent of
the old word alike. GB/s are bf16 bytes per second of CPU time of one thread. For the codec alone, each
part is timed ``--repeat`` times, and its best time counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import importlib
import importlib.metadata
import os
import random
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import zstandard

from whetstone.core.settings import Sampling
from whetstone.data.builtin import shipped_problems
from whetstone.engine.engine import GenerationRequest
from whetstone.engine.factory import build_engine
from whetstone.engine.loading import load_model
from whetstone.engine.settings import EngineSection
from whetstone.trainer.optimizer import MasterAdamW
from whetstone.weights.codec import decode_delta, encode_delta
from whetstone.weights.manifest import Manifest, digest
from whetstone.weights.publisher import VersionEncoder
from whetstone.weights.replica import WeightReplica
from whetstone.weights.shards import elements_of, whole_tensors
from whetstone.weights.subscription import EngineUpdater
from whetstone.weights.tcp_client import TcpSource
from whetstone.weights.tcp_server import TcpServer
from whetstone.weights.version_store import VersionStore

LINKS = {"loopback": "", "1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit"}
NETWORK = 0x40000000  # CLONE_NEWNET
TOKEN = "beyond loopback there has to be one"

Words = dict[str, Any]


class Training:
    """A model, and steps of its weights."""

    def __init__(self, model: Any, tokenizer: Any, lr: float, rows: int) -> None:
        self.model, self.lr, self._rows, self.number = model, lr, rows, 0
        self._draw = torch.Generator().manual_seed(0)
        self.optimizer = MasterAdamW(model.named_parameters())
        for master in (v for k, v in self.optimizer.state_dict().items() if k.startswith("master/")):
            unit = torch.exp2(torch.floor(torch.log2(master.detach().abs().clamp_min(1e-30))) - 7)
            master.data += (torch.rand(master.shape, generator=self._draw) - 0.5) * 0.98 * unit
        problems = [p for p in shipped_problems("builtin:train") if p.references]
        random.Random(0).shuffle(problems)
        texts = [f"{p.statement}\n{p.references[0].source}" for p in problems]
        self._ids = [tokenizer(text)["input_ids"][:128] for text in texts]

    def step(self) -> None:
        rows = [self._ids.pop() for _ in range(self._rows)]
        tokens = sum(map(len, rows))
        for row in rows:
            ids = torch.tensor([row])
            logits = self.model(ids).logits[0, :-1].float()
            chosen = torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])
            advantage = float(torch.randn((), generator=self._draw))
            (-advantage * chosen.sum() / tokens).backward()
        self.optimizer.update(self.lr)
        self.number += 1


def machine() -> str:
    """The processor, the load, and the versions of what does the work."""
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    packages = ("torch", "numpy", "zstandard", "blake3")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{len(names)} x {names[0]}, load {os.getloadavg()[0]:.1f}; {versions}"


def xor_bytes(old: Words, new: Words) -> int:
    """Bytes of the XOR of old and new words through zstd, tensor by tensor."""
    pack = zstandard.ZstdCompressor(level=1).compress
    return sum(len(pack((before ^ new[name]).data)) for name, before in old.items())


def entropy_bytes(old: Words, new: Words) -> tuple[float, float]:
    """Entropy of which words change and of their differences, if words are independent: in one distribution,
    and in one for each exponent of the old word."""
    one, other = np.concatenate(list(old.values())), np.concatenate(list(new.values()))
    at = np.flatnonzero(one != other)
    exponents, differences = (one >> 7 & 255).astype(np.uint8), other[at] - one[at]
    words, changed = np.bincount(exponents, minlength=256), exponents[at]
    found = entropy_bits(len(one), differences)
    parts = [entropy_bits(words[n], differences[changed == n]) for n in np.flatnonzero(words)]
    return found / 8, sum(parts) / 8


def entropy_bits(words: int, differences: Any) -> float:
    counts = np.append(np.unique(differences, return_counts=True)[1], words - len(differences))
    counts = counts[counts > 0]
    return float((counts * np.log2(words / counts)).sum())


def speeds(manifest: Manifest, old: Words, new: Words, repeat: int) -> tuple[float, float, float]:
    """CPU seconds of encoding, decoding and checksums on one thread: for each part the best of some times."""
    total = [0.0, 0.0, 0.0]
    for number in range(len(manifest.shards[0].parts)):
        blocks = manifest.shards[0].part(number)
        names = [manifest.tensors[block.tensor].name for block in blocks]
        before, after = (
            [words[name][b.offset : b.offset + b.count] for name, b in zip(names, blocks, strict=True)]
            for words in (old, new)
        )
        data, _ = encode_delta(before, after)
        works = (
            lambda b=before, a=after: encode_delta(b, a),
            lambda b=before, d=data: decode_delta(d, b),
            lambda a=after: [digest(block) for block in a],
        )
        for n, work in enumerate(works):
            total[n] += min(cpu_seconds(work) for _ in range(repeat))
    return total[0], total[1], total[2]


def cpu_seconds(work: Any) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


class Watch:
    """CPU and wall seconds of a block on this thread, and what numpy and Python allocated in it at most."""

    def __enter__(self) -> Watch:
        tracemalloc.start()
        self._cpu, self._wall = time.thread_time(), time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.cpu, self.wall = time.thread_time() - self._cpu, time.perf_counter() - self._wall
        self.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def encoded(publisher: VersionEncoder, number: int, model: Any) -> tuple[float, Watch, Any]:
    """Seconds of the snapshot; the encoding, run on this thread alone; and the manifest."""
    here: Any = Here()
    publisher._publishing = publisher._workers = here
    rank = publisher.begin(number, whole_tensors(model.named_parameters())).result()
    return rank.snapshot_s, here.watch, publisher.announce(rank)


class Here:
    """An executor that does it at once, so that CPU time is counted."""

    def submit(self, work: Any, *args: Any) -> Any:
        with Watch() as self.watch:
            found = work(*args)
        return type("Done", (), {"result": lambda self: found})()

    def map(self, work: Any, items: Any) -> Any:
        return map(work, items)

    def shutdown(self, wait: bool = True) -> None:
        pass


@contextlib.contextmanager
def served_over(shelf: VersionStore, rate: str) -> Iterator[tuple[TcpServer, str]]:
    """A server of versions, and its address for this thread, which is another host while the block lasts.

    The hosts are network namespaces, with a link between them of ``rate`` (of tc's tbf) each way.
    """
    if not rate:
        with TcpServer(shelf) as server:
            yield server, server.address
        return
    hosts = [f"w{side}{os.getpid()}" for side in "tr"]
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        for host in hosts:
            ip("netns", "add", host)
        ends = ["type", "veth", "peer", "name", "wire", "netns", hosts[1]]
        ip("-n", hosts[0], "link", "add", "wire", *ends)
        for number, host in enumerate(hosts, 1):
            ip("-n", host, "address", "add", f"10.77.0.{number}/24", "dev", "wire")
            ip("-n", host, "link", "set", "wire", "up")
            bucket = ["rate", rate, "burst", "1mb", "latency", "50ms"]
            ip("netns", "exec", host, "tc", "qdisc", "add", "dev", "wire", "root", "tbf", *bucket)
        go_to(hosts[0])
        with TcpServer(shelf, host="10.77.0.1", token=TOKEN) as server:
            go_to(hosts[1])
            yield server, server.address
    finally:
        ctypes.CDLL(None).setns(home, NETWORK)
        os.close(home)
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def go_to(host: str) -> None:
    """This thread, and those that it starts from now on, are there."""
    with open(f"/run/netns/{host}") as place:
        ctypes.CDLL(None).setns(place.fileno(), NETWORK)


def measure_steps(args: argparse.Namespace, lr: float) -> tuple[Training, VersionEncoder, VersionStore]:
    # The parameters of an fp32 model are the masters. They are published in bf16.
    loaded = load_model(args.model, dtype="float32")
    model = loaded.model
    training = Training(model, loaded.tokenizer, lr, args.rows)
    shelf = VersionStore()
    publisher = VersionEncoder("smol", shelf)
    encoded(publisher, 0, model)
    held = {name: p.detach().bfloat16() for name, p in model.named_parameters()}
    replica = WeightReplica(held, "smol")
    replica.version_id = shelf.plan(None)[0].version_id
    for number in range(1, args.steps + 1):
        old = {name: elements_of(tensor).copy() for name, tensor in held.items()}
        training.step()
        snapshot_s, encoding, manifest = encoded(publisher, number, model)
        new = {name: elements_of(p.detach().bfloat16()) for name, p in model.named_parameters()}
        reading = shelf.open(number, number - 1)

        def fetch(of: Any, keys: Any, take: Any, reading: Any = reading) -> None:
            for key in keys:
                take(key, reading.part(key[1]))

        with Watch() as applying:
            prepared = replica.prepare(manifest, fetch)
        with Watch() as writing:
            prepared.write()
        replica.commit(prepared)
        equal = all(np.array_equal(elements_of(held[name]), new[name]) for name in new)
        ours, changed, words = manifest.shards[0].size, manifest.shards[0].changed, manifest.size // 2
        listed = changed * 6
        independent, by_exponent = entropy_bytes(old, new)
        encode, decode, check = (manifest.size / s / 1e9 for s in speeds(manifest, old, new, args.repeat))
        both = 1 / (1 / encode + 1 / check)
        print(
            f"| {lr:g} | {number} | {changed / words:.2%} | {ours:,} | {ours * 8 / changed:.2f} "
            f"| **{ours / listed:.3f}** | {by_exponent / listed:.3f} | {independent / listed:.3f} "
            f"| {xor_bytes(old, new) / listed:.3f} | {'yes' if equal else 'NO'} "
            f"| {encode:.2f} | {decode:.2f} | {check:.2f} | {both:.2f} | {snapshot_s * 1e3:.0f} "
            f"| {writing.wall * 1e3:.0f} | {encoding.peak >> 20} | {applying.peak >> 20} |",
            flush=True,
        )
    return training, publisher, shelf


async def follow(
    args: argparse.Namespace, training: Training, publisher: VersionEncoder, shelf: VersionStore, link: str
) -> None:
    """An engine that generates while it follows a full version and deltas by a socket."""
    loaded = load_model(args.model, dtype="bfloat16")
    served = loaded.model
    with torch.no_grad():
        for parameter in served.parameters():
            parameter.mul_(0.5)
    section = EngineSection()
    if args.vllm:
        arguments = ["--max-num-seqs", "8", "--max-model-len", "2048", "--enforce-eager"]
        given = {"VLLM_CPU_KVCACHE_SPACE": "1"}
        options = {"python": args.vllm, "arguments": arguments, "environment": given}
        section = EngineSection(kind="vllm", options=options)
    engine = build_engine(section, lambda: served, loaded.tokenizer)
    replica = WeightReplica(dict(served.named_parameters()), "smol")
    with served_over(shelf, LINKS[link]) as (_, address):
        source = TcpSource(address, token=TOKEN if LINKS[link] else "")
        follower = EngineUpdater(engine, replica, source, copies=bool(args.vllm))
        asked = GenerationRequest([1, 2, 3], Sampling(max_tokens=1900), n=8)
        reply = asyncio.ensure_future(anext(engine.generate(asked)))
        steps = await follower.update()
        for _ in range(args.deltas):
            await asyncio.sleep(args.interval)
            training.step()
            publisher.begin(training.number, whole_tensors(training.model.named_parameters()))
            publisher.announce(publisher._pending.result())  # type: ignore[union-attr]
            steps += await follower.update()
        reply.cancel()
        await engine.close()
        source.close()
    for step in steps:
        figures = f"{step.fetched_bytes:,} | {step.prepare_s:.2f} | {step.pause_s * 1e3:.0f}"
        print(f"| {link} | {step.kind} | {figures} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--lrs", type=float, nargs="+", default=[1e-6, 3e-6, 1e-5])
    parser.add_argument("--links", nargs="*", default=list(LINKS), choices=LINKS)
    parser.add_argument("--repeat", type=int, default=3, help="times that each part is encoded for its speed")
    parser.add_argument("--deltas", type=int, default=1)
    parser.add_argument("--interval", type=float, default=0.0, help="seconds of generation before each delta")
    parser.add_argument("--vllm", help="an interpreter with vLLM, which then is the engine")
    parser.add_argument("--ratios", action="store_true", help="only speed and size relative to their bounds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(machine(), "\n")
    if args.ratios:
        importlib.import_module("benchmarks.weight_ratios").print_ratios()
        return
    columns = (
        "lr | step | changed | bytes | bits a change | of index + value | entropy by exponent | entropy "
        "| XOR, zstd-1 | same bits | encode, GB/s | decode, GB/s | checksum, GB/s | encode + checksum, GB/s "
        "| snapshot, ms | write, ms | encode, MiB | verify, MiB"
    )
    print(f"| {columns} |\n" + "| --- " * (columns.count(" | ") + 1) + "|", flush=True)
    for lr in args.lrs:
        last = measure_steps(args, lr)
    print("\n| link | version | bytes | fetch and verify, s | pause, ms |\n| --- | --- | --- | --- | --- |")
    for link in args.links:
        asyncio.run(follow(args, *last, link))


if __name__ == "__main__":
    main()
