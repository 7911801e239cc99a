"""What the flow costs: is anybody idle who need not be, and how many groups a core takes in and hands out.

``python benchmarks/async.py simulated`` runs the flow's own state machine against a clock that is computed:
engines, judges and trainers are durations. ``python benchmarks/async.py service`` runs the HTTP service in a
process of its own, with a log on a disk, and counts its CPU seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from whetstone.core.http.settings import Address
from whetstone.rollout.async_flow import WaitingReplicas
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.group_facts import GroupFacts
from whetstone.rollout.identity import Identity
from whetstone.rollout.protocol import LeaseRequest, LeaseResponse, TrainerRequest
from whetstone.rollout.scheduler import Delivery, FlowScheduler
from whetstone.rollout.service import wire
from whetstone.rollout.service.app import serve_flow
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import Offer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.rollout.group_facts_at import facts_at
from tests.rollout.memory_log import MemoryLog

IDENTITY = Identity({"benchmark": "async"})
SIGMA = 1.0
"""Of the logarithm of a reply's duration: one in a hundred takes ten times the median."""
DROPPED = 0.25
CASES = ((8, 16, 5_000), (64, 16, 5_000), (64, 1, 5_000), (256, 4, 5_000))


class Simulation:
    """``slots`` replies at once on up to 64 replicas, ``judges`` programs at once, one trainer."""

    def __init__(
        self, slots: int, *, judge_s: float, judges: int, step_s: float, prompts: int, staleness: int
    ) -> None:
        self.rng = random.Random(7)
        rules = FlowRules(prompts_per_step=prompts, staleness=staleness, lease_s=1e9, silence_s=1e9)
        self.scheduler = FlowScheduler(
            rules, PromptSource([f"p{n}" for n in range(1000)], 0), MemoryLog(), 0.0
        )
        count = min(64, slots)
        self.free = {f"r{n}": slots // count + (n < slots % count) for n in range(count)}
        # Beside the replies that are written, as many prompts as are judged or wait for a free engine.
        ahead = math.ceil(judges / count) + 2
        self.room = {name: free + ahead for name, free in self.free.items()}
        self.queue: dict[str, deque[Any]] = {name: deque() for name in self.free}
        self.version = dict.fromkeys(self.free, 0)
        self.judge_s, self.judges, self.step_s = judge_s, judges, step_s
        self.judging: deque[Any] = deque()
        self.turns = WaitingReplicas()
        self.events: list[tuple[float, int, Any]] = []
        self.now, self.step, self.trains = 0.0, 0, False
        self.number = 0

    def at(self, seconds: float, what: Any, *given: Any) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + seconds, self.number, partial(what, *given)))

    def run(self, steps: int) -> tuple[float, float]:
        """Seconds of the later two thirds of the steps, and how many these are."""
        began, first = 0.0, steps // 3
        self.scheduler.resume("policy", 0, 0, [])
        for name in self.free:
            self.take(name)
        while self.step < steps:
            self.train()
            if not self.events:
                raise SystemExit("the simulation stands still")
            self.now, _, what = heapq.heappop(self.events)
            what()
            if self.step == first and not began:
                began = self.now
        return self.now - began, steps - first

    def news(self) -> None:
        self.turns.serve(self.scheduler, self.take)

    def take(self, name: str) -> bool:
        held = list(self.scheduler.state.leases_by_replica.get(name, ()))
        versions = {"policy": self.version[name]}
        taken = self.scheduler.take(name, holding=held, room=self.room[name], versions=versions, now=self.now)
        self.queue[name].extend(taken.leases)
        self.generate(name)
        # It asks on at once, for as long as it may hold more.
        if self.scheduler.may_take(name):
            self.turns.add(name)
        return not self.scheduler.may_take(name)

    def generate(self, name: str) -> None:
        while self.free[name] and self.queue[name]:
            self.free[name] -= 1
            grant, version = self.queue[name].popleft(), self.version[name]
            seconds = self.rng.lognormvariate(-SIGMA * SIGMA / 2, SIGMA)  # the mean is 1
            self.at(seconds, self.generated, name, grant, version)

    def generated(self, name: str, grant: Any, version: int) -> None:
        self.free[name] += 1
        self.judging.append((name, grant, version))
        self.judge()
        self.generate(name)

    def judge(self) -> None:
        while self.judges and self.judging:
            self.judges -= 1
            one = self.judging.popleft()
            self.at(self.rng.uniform(0.5, 1.5) * self.judge_s, self.judged, *one)

    def judged(self, name: str, grant: Any, version: int) -> None:
        self.judges += 1
        self.judge()
        rewards: list[float | None] = [0.0, float(self.rng.random() >= DROPPED)]
        facts = GroupFacts(grant.problem, "", "", rewards, [1, 1], version, version)
        self.scheduler.deliver(name, Delivery(grant.serial, grant.draw, {"policy": (facts, b"")}), self.now)
        self.take(name)
        self.news()

    def train(self) -> None:
        if not self.trains and self.scheduler.next_batch("policy", self.step) is not None:
            self.trains = True
            self.scheduler.checkpoint_saved("policy", self.step)
            self.news()
            self.at(self.step_s, self.trained)

    def trained(self) -> None:
        self.step, self.trains = self.step + 1, False
        self.scheduler.publish("policy", Offer(self.step))
        # The weights are with a replica a little later, and replies under way go on.
        for name in self.version:
            self.at(0.05 * self.step_s, lambda name=name: self.version.update({name: self.step}))
        self.at(0.05 * self.step_s, lambda: [self.take(name) for name in self.version])


def simulated() -> None:
    """Throughput divided by what the slowest of generation, judging and training would allow alone."""
    print("| replies at once | batch | bound by | staleness | throughput / bound | stale | CPU µs a group |")
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for slots, prompts, staleness in (
        (8, 4, 8),
        (64, 32, 8),
        (256, 128, 8),
        (1000, 512, 8),
        (64, 16, 8),
        (64, 32, 2),
    ):
        for bound in ("generation", "judging", "training"):
            rate = (
                slots if bound == "generation" else 0.7 * slots
            )  # what the slowest does, in prompts a second
            judges = max(1, slots // 8)
            judge_s = judges / rate if bound == "judging" else 0.7 * judges / rate
            kept = prompts / (1 - DROPPED)
            step_s = kept / rate if bound == "training" else 0.7 * kept / rate
            work = Simulation(
                slots, judge_s=judge_s, judges=judges, step_s=step_s, prompts=prompts, staleness=staleness
            )
            began = time.process_time()
            seconds, counted = work.run(max(60, min(300, 6000 // prompts)))
            cpu = time.process_time() - began
            achieved = counted * prompts / seconds
            most = rate * (1 - DROPPED)
            tallies = work.scheduler.state.models["policy"].audit.outcomes
            groups = sum(tally.groups for tally in tallies.values())
            stale = tallies["stale"].groups / groups if "stale" in tallies else 0.0
            print(
                f"| {slots} | {prompts} | {bound} | {staleness} | {achieved / most:.3f} | {stale:.2%} | "
                f"{cpu / groups * 1e6:.0f} |",
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
                await link.ask("/v1/deliver", wire.delivery_frame(name, ready))

    running = [asyncio.create_task(replica(f"r{n}")) for n in range(replicas)]
    link = Link(port)
    await link.open()
    for version in range(steps):
        wish = TrainerRequest("policy", version, latest, version or None, 20.0)
        while isinstance(
            made := wire.read_batch(await link.ask("/v1/batch", msgspec.msgpack.encode(wish))), str
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
            process.communicate()
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
    parser.add_argument("what", choices=("simulated", "service", "serve"))
    parser.add_argument("rest", nargs="*")
    asked = parser.parse_args()
    {"simulated": simulated, "service": service, "serve": serve}[asked.what](*asked.rest)
