"""What the flow costs: is anybody idle who need not be, and how many groups a core takes in and hands out.

``python benchmarks/async.py simulated`` and ``rules`` run the flow's own state machine against a clock that
is computed (``flow_simulation.py``). ``python benchmarks/async.py real [RULE …]`` trains a tiny model.
``python benchmarks/async.py service`` runs the HTTP service in a process of its own, with a log on a disk,
and counts its CPU seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import msgspec

from flow_simulation import Bound, Setting, Simulation
from whetstone.core.http.settings import Address
from whetstone.report.ledger import latest_tokens, ledger_line
from whetstone.report.metrics import read_metrics
from whetstone.rollout.flow_rules import BatchComposition, FlowRules
from whetstone.rollout.identity import Identity
from whetstone.rollout.ledger import unaccounted
from whetstone.rollout.protocol import (
    BatchPending,
    DeliveryRequest,
    LeaseRequest,
    LeaseResponse,
    TrainerRequest,
)
from whetstone.rollout.scheduler import Delivery
from whetstone.rollout.service import wire
from whetstone.rollout.service.app import serve_flow
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import Offer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.rollout.doubles import facts_at

IDENTITY = Identity({"benchmark": "async"})


SETTINGS = ((8, 4, 8), (64, 32, 8), (256, 128, 8), (1000, 512, 8), (64, 16, 8), (64, 32, 2))
"""Prompts at once, prompts of a batch, and staleness."""
COMPOSED: tuple[dict[str, Any], ...] = (
    {"slots": 64, "prompts": 32, "staleness": 2},
    {"slots": 64, "prompts": 32, "staleness": 8},
    {"slots": 64, "prompts": 64, "staleness": 8},
    {"slots": 64, "prompts": 64, "staleness": 4, "limit": 4.0},
    {"slots": 256, "prompts": 256, "staleness": 4, "limit": 4.0},
    {"slots": 512, "prompts": 128, "staleness": 4, "limit": 4.0, "replies": 8},
)
BOUNDS: tuple[Bound, ...] = get_args(Bound)


def steps_of(prompts: int) -> int:
    """Steps of a simulation."""
    return max(60, min(300, 6000 // prompts))


def simulated() -> None:
    """Throughput divided by what the slowest of generation, judging and training would allow alone, with
    replies of any length and the rule ``drop``."""
    print("| replies at once | batch | bound by | staleness | throughput / bound | stale | CPU µs a group |")
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for slots, prompts, staleness in SETTINGS:
        for bound in BOUNDS:
            work = Simulation(Setting(slots, prompts, staleness, bound, "drop"))
            began = time.process_time()
            found = work.run(steps_of(prompts))
            groups = sum(len(record.groups) for record in work.batches)
            cost = (time.process_time() - began) / groups * 1e6
            print(
                f"| {slots} | {prompts} | {bound} | {staleness} | {found.groups:.3f} | "
                f"{found.stale_groups:.2%} | {cost:.0f} |",
                flush=True,
            )


def rules() -> None:
    """What each rule of batch composition achieves, by bottleneck: generation, judging, training."""
    print("| setting | rule | groups / bound | tokens / bound | wasted tokens | KS of lengths | token age |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for values in COMPOSED:
        for rule in get_args(BatchComposition):
            found = [
                Simulation(Setting(bound=bound, rule=rule, **values)).run(steps_of(values["prompts"]))
                for bound in BOUNDS
            ]
            named = ", ".join(f"{name} {value:g}" for name, value in values.items())
            columns = (
                [f"{each.groups:.2f}" for each in found],
                [f"{each.tokens:.2f}" for each in found],
                [f"{each.wasted:.1%}" for each in found],
                [f"{each.ks:.3f}" for each in found],
                [f"{each.age:.2f}" for each in found],
            )
            print(f"| {named} | {rule} | {' | '.join(', '.join(c) for c in columns)} |", flush=True)


RECIPE = """
name: composition
seed: 3
model:
  scratch: {hidden_size: 64, layers: 2, heads: 2, kv_heads: 2, intermediate_size: 128, vocab_size: 512}
  dtype: float32
  threads: 1
engine: {options: {max_batch: 32}}
warmup: {steps: 20, batch_size: 32, lr: 4.0e-3, wrong_share: 0.5}
data: {train: "micro:train", heldout: null}
environment: {chat: false, prompt: "# {statement}\\n", prefix: "def f(xs):\\n    return ", extraction: whole}
sampling: {temperature: 1.3, max_tokens: 256}
algorithm: {preset: dapo, drop_zero_variance: false, refill_rounds: 0, overlong_buffer: 256}
trainer: {steps: 60, prompts_per_step: 4, samples_per_prompt: 4, lr: 1.0e-5, checkpoint_every: 10}
evaluation: {train_problems: 0, every: 0}
judge: {workers: 1}
flow: {staleness: 2, replicas: 1}
"""


def real(*names: str) -> None:
    """60 steps of a tiny model with each rule: the figures are those of its metrics."""
    print("| rule | steps a minute | busy: trainer, replica | wasted | KS of lengths | token age | ledger |")
    print("| --- | ---: | --- | ---: | ---: | ---: | --- |")
    for rule in names or get_args(BatchComposition):
        with tempfile.TemporaryDirectory() as folder:
            recipe, run = Path(folder, "recipe.yaml"), Path(folder, "run")
            recipe.write_text(RECIPE, encoding="utf-8")
            words = ["train", str(recipe), f"out={run}", f"flow.batch_composition={rule}"]
            subprocess.run([sys.executable, "-m", "whetstone", *words], check=True, stdout=sys.stderr)
            train = [record for record in read_metrics(run / "metrics.jsonl") if record["kind"] == "train"]
        tokens = latest_tokens(train)
        assert unaccounted(tokens) == 0, tokens
        later = train[len(train) // 3 :]
        minutes = (later[-1]["time"]["at"] - later[0]["time"]["at"]) / 60
        busy = [fmean(each["time"][f"{who}_busy"] for each in later) for who in ("trainer", "replicas")]
        age = fmean(each["staleness/token_age"] for each in later)
        last = train[-1]
        print(
            f"| {rule} | {(len(later) - 1) / minutes:.1f} | {busy[0]:.2f}, {busy[1]:.2f} | "
            f"{last['staleness/wasted']:.1%} | {last['staleness/length_shift']:.3f} | {age:.2f} | "
            f"{ledger_line(tokens)} |",
            flush=True,
        )


class Link:
    """One connection that asks a flow, with as little work as can be: the client is not what is measured."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{wire.RUN_HEADER}: {IDENTITY.digest}\r\n"
        self._writer.write(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(answer.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" in answer:
            parts: list[bytes] = []
            while size := int(await self._reader.readline(), 16):
                parts.append(await self._reader.readexactly(size))
                await self._reader.readexactly(2)
            await self._reader.readexactly(2)
            data = b"".join(parts)
        else:
            size = int(answer.split(b"content-length: ")[1].split(b"\r\n")[0])
            data = await self._reader.readexactly(size)
        if status != 200:
            raise SystemExit(data.decode())
        return data


async def work(port: int, replicas: int, room: int, prompts: int, steps: int, payload: bytes) -> None:
    """Replicas that finish at once whatever they are given, and a trainer that needs no time."""
    latest = Offer(0)
    meta = "x" * 1000

    async def replica(name: str) -> None:
        link, holding = Link(port), list[int]()
        await link.open()
        while True:
            served = latest
            ask = LeaseRequest(name, holding, room, {"policy": served}, {}, 20.0)
            news = msgspec.msgpack.decode(
                await link.ask("/v1/take", msgspec.msgpack.encode(ask)), type=LeaseResponse
            )
            ready: list[Delivery] = []
            for grant in news.leases:
                facts = facts_at(grant.problem, meta, "", [0.0, 1.0] * 4, [512] * 8, served.version)
                ready.append(Delivery(grant.serial, grant.draw, {"policy": (facts, payload)}))
            if ready:
                await link.ask("/v1/deliver", wire.frame(wire.encode(DeliveryRequest(name, ready))))

    running = [asyncio.create_task(replica(f"r{n}")) for n in range(replicas)]
    link = Link(port)
    await link.open()
    for version in range(steps):
        wish = TrainerRequest("policy", version, latest, version or None, 20.0)
        while isinstance(
            made := wire.read_batch(await link.ask("/v1/batch", wire.encode(wish))), BatchPending
        ):
            pass
        if len(made.groups) != prompts:
            raise SystemExit(f"a batch of {len(made.groups)}")
        latest = Offer(version + 1)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def service() -> None:
    """Groups through the service, in and out, by CPU second of its process."""
    print(
        "| replicas | prompts a replica holds | bytes a group | groups | a second (wall) | a CPU second of "
        "the flow | MB of groups a CPU second, each way | most memory, MB |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for replicas, room, size in (
        (8, 16, 5_000),
        (64, 16, 5_000),
        (64, 1, 5_000),
        (256, 4, 5_000),
        (1000, 1, 5_000),
        (64, 16, 200_000),
    ):
        prompts = 128
        steps = 16
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(
                [sys.executable, __file__, "serve", folder, str(prompts)], stderr=subprocess.PIPE, text=True
            )
            assert process.stderr is not None
            port = json.loads(process.stderr.readline())["port"]
            # A line for each replica: a pipe that nobody reads stops the service when it is full.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            before = cpu_of(process.pid)
            began = time.monotonic()
            asyncio.run(work(port, replicas, room, prompts, steps, os.urandom(size)))
            wall, cpu = time.monotonic() - began, cpu_of(process.pid) - before
            memory = next(
                line
                for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
                if "VmHWM" in line
            )
            process.terminate()
            process.wait()
        groups = steps * prompts
        print(
            f"| {replicas} | {room} | {size} | {groups} | {groups / wall:.0f} | {groups / cpu:.0f} | "
            f"{groups * size / cpu / 1e6:.0f} | {int(memory.split()[1]) / 1000:.0f} |",
            flush=True,
        )


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve(folder: str, prompts: str) -> None:
    """The service that is measured."""
    rules = FlowRules(prompts_per_step=int(prompts), staleness=8)
    source = PromptSource([f"p{n}" for n in range(1000)], 0)
    serve_flow(Address(port=0), rules, source, Path(folder) / "flow", IDENTITY)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("simulated", "rules", "real", "service", "serve"))
    parser.add_argument("rest", nargs="*")
    asked = parser.parse_args()
    commands = {"simulated": simulated, "rules": rules, "real": real, "service": service, "serve": serve}
    commands[asked.what](*asked.rest)
