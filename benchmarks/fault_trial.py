"""A run whose roles are broken on purpose: its processes, its steps as they are seen, what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from whetstone.rollout.file_log import FileLog
from whetstone.rollout.ledger import unaccounted
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import FlowState
from whetstone.rollout.status import accounts, token_totals
from whetstone.run.prepared_run import preflight_models
from whetstone.run.recipe import load_recipe
from whetstone.run.roles.identity import run_identity
from whetstone.run.run_dir import flow_url_of

RECIPE = """
name: faults
seed: 3
model:
  scratch: {hidden_size: 64, layers: 2, heads: 2, kv_heads: 2, intermediate_size: 128, vocab_size: 512}
  dtype: float32
  threads: 1
warmup: {steps: 30, batch_size: 32, lr: 4.0e-3, wrong_share: 0.5}
data: {train: "micro:train", heldout: null}
environment: {chat: false, prompt: "# {statement}\\n", prefix: "def f(xs):\\n    return ", extraction: whole}
sampling: {temperature: 1.0, max_tokens: 48}
algorithm: {preset: dapo, drop_zero_variance: false, refill_rounds: 0, overlong_buffer: 48}
trainer: {steps: 100000, prompts_per_step: 8, samples_per_prompt: 8, lr: 1.0e-5, checkpoint_every: 5}
evaluation: {train_problems: 0, every: 0}
judge: {workers: 1}
flow: {staleness: 1, batch_composition: drop, replicas: 2, room: 8, silence_s: 5, lease_s: 10, restarts: 50}
"""
ENOUGH_S = 600.0
"""A role that has not done by then what is waited for has failed."""
Row = tuple[str, str]


class Steps(threading.Thread):
    """When each step was seen in a run's metrics."""

    def __init__(self, run: Path) -> None:
        super().__init__(daemon=True)
        self._file, self._ends = run / "metrics.jsonl", threading.Event()
        self.seen: list[tuple[float, int]] = []
        self.last = 0

    def run(self) -> None:
        size = -1
        while not self._ends.wait(0.01):
            now = self._file.stat().st_size if self._file.exists() else 0
            if now != size:
                size = now
                self._look()

    def end(self) -> None:
        self._ends.set()
        self.join()

    def after(self, moment: float, what: str) -> float:
        """Seconds from ``moment`` to the next step that is made."""
        until(lambda: bool(self.seen) and self.seen[-1][0] > moment, what)
        return next(when for when, _ in self.seen if when > moment) - moment

    def reach(self, count: int) -> None:
        """Wait for so many steps more."""
        goal = len(self.seen) + count
        until(lambda: len(self.seen) >= goal, f"{count} more steps")

    def gap(self, since: float, to: float) -> float:
        """The longest time without a step."""
        moments = [since, *(when for when, _ in self.seen if since < when < to), to]
        return max(b - a for a, b in pairwise(moments))

    def _look(self) -> None:
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        made = [json.loads(line)["step"] for line in lines if line.startswith("{") and line.endswith("}")]
        last = max(made, default=0)
        if last > self.last:
            self.seen.append((time.monotonic(), last))
        self.last = last


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    deadline = time.monotonic() + ENOUGH_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {ENOUGH_S:.0f} s")
        time.sleep(0.01)


class Process:
    """A command of ours, which says what it says into a file."""

    def __init__(self, folder: Path, name: str, command: Sequence[str]) -> None:
        self.name, self.said = name, folder / f"{name}.log"
        with self.said.open("ab") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def words(self) -> str:
        return self.said.read_text(encoding="utf-8", errors="replace")

    def tell(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, *wanted: int) -> None:
        """Wait for its end, with one of these statuses."""
        status = self._process.wait(ENOUGH_S)
        if status not in wanted:
            raise SystemExit(f"{self.name} ended with {status}:\n{self.words()[-3000:]}")

    def end(self) -> None:
        self.tell(signal.SIGKILL)
        self._process.wait()


class Trial:
    """A run in a folder of its own: its roles, its steps, and the check of what it leaves."""

    def __init__(self, folder: Path, *, log: Path | None = None, host: str = "127.0.0.1") -> None:
        self.folder, self.run, self.log, self._host = folder, folder / "run", log, host
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(RECIPE, encoding="utf-8")
        self._undone = ExitStack()
        self.steps = Steps(self.run)
        self.steps.start()
        self._undone.callback(self.steps.end)
        self.url = ""

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *error: object) -> None:
        self._undone.close()

    def start(self, name: str, *words: str, host: Sequence[str] = ()) -> Process:
        """``whetstone WORDS`` with this run's recipe."""
        verb = [words[0]] if words[0] == "train" else list(words[:2])
        command = [*host, sys.executable, "-m", "whetstone", *verb, str(self.recipe), f"out={self.run}"]
        # A role ends with who started it; of `train` those that it starts do.
        ends = ["--parent", str(os.getpid())] if words[0] == "role" else []
        process = Process(self.folder, name, [*command, *words[len(verb) :], *ends])
        self._undone.callback(process.end)
        return process

    def start_flow(self) -> Process:
        place = ["--host", self._host, "--port", "0"]
        flow = self.start("flow", "role", "flow", *place, *(["--log", str(self.log)] if self.log else []))
        until(lambda: '"listening"' in flow.words(), "the flow to listen")
        said = next(line for line in flow.words().splitlines() if '"listening"' in line)
        self.url = f"http://{self._host}:{json.loads(said)['port']}"
        return flow

    def start_trainer(self, *words: str) -> Process:
        place = ["--flow", self.url, "--weights-host", self._host]
        return self.start("trainer", "role", "trainer", *words, *place)

    def start_replica(self, name: str, host: Sequence[str] = ()) -> Process:
        return self.start(name, "role", "rollout", "--name", name, "--flow", self.url, host=host)

    def status(self) -> dict[str, Any]:
        """What the flow says; nothing while it is not there."""
        url = self.url or flow_url_of(self.run) or ""
        token = os.environ.get("WHETSTONE_FLOW_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{url}/v1/status", headers=headers)
            ) as answer:
                return json.loads(answer.read())
        except (OSError, ValueError):
            return {}

    def holds(self, replica: str) -> int:
        """The prompts of a replica that was heard of just now."""
        its = self.status().get("replicas", {}).get(replica, {})
        return its.get("holds", 0) if its.get("heard_s", 99.0) < 2 else 0

    def trains(self) -> bool:
        """Whether the trainer has a batch in hand."""
        models = self.status().get("models", {})
        return any(its["trainer"].startswith("trains") for its in models.values())

    def finish(self, trainer: Process, *others: Process) -> None:
        """Drain the trainer, have it make two steps more to its last one, and drain the others."""
        trainer.tell(signal.SIGTERM)
        trainer.wait(130)
        self.start_trainer(f"trainer.steps={self.steps.last + 2}").wait(0)
        for each in others:
            each.tell(signal.SIGTERM)
            each.wait(0, 130)

    def check(self) -> Row:
        """Where every prompt is, by what the trainer has written and by the log of the flow."""
        aheads = preflight_models(load_recipe(self.recipe, [f"out={self.run}"]), lambda _: None)
        [ahead] = aheads.values()
        log = FileLog(self.log or self.run / "flow", run_identity(aheads).log_digest)
        state = log.state
        log.close()
        assert state is not None
        records = [json.loads(line) for line in (self.run / "metrics.jsonl").read_text().splitlines()]
        made = [record["step"] for record in records if record["kind"] == "train"]
        assert made == list(range(1, len(made) + 1)), "a step is missing, or there twice"
        source = PromptSource([problem.id for problem in ahead.sets.train], ahead.recipe.seed)
        return "at the end", f"{len(made)} steps, {_accounted(state, source, self._told(len(made)))}"

    def _told(self, steps: int) -> Counter[str]:
        """By problem, how many groups the batches of all steps had, as the trainer wrote them down."""
        told: Counter[str] = Counter()
        for step in range(1, steps + 1):
            table = pq.read_table(self.run / "rollouts" / f"step-{step:06d}.parquet", columns=["problem_id"])
            told.update(table.column("problem_id").to_pylist())
        assert all(count % 8 == 0 for count in told.values())
        return Counter({problem: count // 8 for problem, count in told.items()})


def _accounted(state: FlowState, source: PromptSource[str], told: Counter[str]) -> str:
    [(name, model)] = state.models.items()
    where = accounts(state, name)
    assert sum(where.values()) == state.drawn, "the flow's audit does not account for every prompt"
    tokens = token_totals(state, name)
    assert unaccounted(tokens) == 0, f"the ledger does not account for every token: {tokens}"
    lost = sum(count for what, count in state.counts.items() if what.startswith("lost/"))
    open_ = {*state.pending, *model.buffer, *(item.draw for item in model.dropped_groups)}
    due = Counter(source.at(draw) for draw in range(state.drawn) if draw not in open_)
    assert not told - due, f"trained twice: {told - due}"
    assert (due - told).total() == lost, f"lost and not counted: {due - told}"
    counts = {what: n for what, n in state.counts.items() if what not in ("drawn", "leased", "finished")}
    words = [f"{state.drawn} prompts drawn", *(f"{n} {what}" for what, n in where.items() if n)]
    words.append(f"tokens: {', '.join(f'{n} {what}' for what, n in tokens.items() if n)}")
    return f"{', '.join(words)}; {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}"
