"""The memory of a device as rows and phases, and its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from whetstone.engine.memory_plan import EngineMemory
from whetstone.trainer.memory_plan import TrainerMemory

GENERATION, SCORING, TRAINING, UPDATE = "generation", "log-probs", "training", "update"
PHASES = (GENERATION, SCORING, TRAINING, UPDATE)

# The part of a device's memory that is planned. The rest is for what torch does not count (the context of the
# device, libraries, buffers of collectives) and for fragments between its blocks.
_USABLE = 0.95


@dataclass(frozen=True)
class PlannedMachine:
    """The devices of a run: how many ranks a trainer in one process has, and the bytes of each device."""

    ranks: int
    device_bytes: int
    on_cpu: bool

    @property
    def usable(self) -> int:
        """The bytes of a device that a plan may use."""
        return int(_USABLE * self.device_bytes)


@dataclass(frozen=True)
class MemoryRow:
    """Bytes of one kind in each phase, and the keys that change them."""

    name: str
    bytes: Mapping[str, int]
    keys: str


@dataclass(frozen=True)
class DevicePlan:
    """The memory of each device with the same roles. Phases follow each other, so the largest counts."""

    title: str
    machine: PlannedMachine
    rows: Sequence[MemoryRow]

    @property
    def phases(self) -> list[str]:
        """The phases in which this device is used."""
        return [phase for phase in PHASES if self.total(phase)]

    @property
    def peak(self) -> int:
        """The bytes of the largest phase."""
        return max(map(self.total, PHASES))

    @property
    def excess(self) -> int:
        """The bytes by which the largest phase exceeds what may be used; negative if it fits."""
        return self.peak - self.machine.usable

    def total(self, phase: str) -> int:
        """Return the bytes of a phase."""
        return sum(row.bytes.get(phase, 0) for row in self.rows)

    def lines(self) -> Iterator[str]:
        """Yield the plan as a table in GB (10^9 bytes)."""
        phases, width = self.phases, max((len(row.name) for row in self.rows), default=0) + 2
        size = f"{self.machine.device_bytes / 1e9:.4g} GB"
        yield f"memory of {self.title}, in GB of {size}:"
        yield "  " + " " * width + "".join(f"{phase:>12}" for phase in phases) + "  changed by"
        for row in self.rows:
            values = "".join(f"{row.bytes.get(phase, 0) / 1e9:12.2f}" for phase in phases)
            yield f"  {row.name:{width}}{values}  {row.keys}".rstrip()
        totals = "".join(f"{self.total(phase) / 1e9:12.2f}" for phase in phases)
        yield f"  {'total':{width}}{totals}  {self.machine.usable / 1e9:.4g} may be used"


def merged_rows(parts: Sequence[Sequence[MemoryRow]]) -> list[MemoryRow]:
    """Return the sums of rows with equal names, without empty ones, in order."""
    found: dict[str, MemoryRow] = {}
    for row in (row for part in parts for row in part):
        before = found.get(row.name)
        sums = {phase: row.bytes.get(phase, 0) for phase in PHASES}
        if before is not None:
            sums = {phase: count + before.bytes[phase] for phase, count in sums.items()}
        found[row.name] = replace(row, bytes=sums)
    return [row for row in found.values() if any(row.bytes.values())]


def without_phase(rows: Sequence[MemoryRow], phase: str) -> list[MemoryRow]:
    """Return the rows for a device that has no such phase."""
    return [replace(row, bytes={**row.bytes, phase: 0}) for row in rows]


ENGINE_WEIGHTS = "engine: weights"


def engine_rows(memory: EngineMemory, phases: Sequence[str]) -> list[MemoryRow]:
    """Return the rows of an engine that works in ``phases``."""
    return [
        MemoryRow(ENGINE_WEIGHTS, dict.fromkeys(phases, memory.weights), "engine.kind, engine.placement"),
        MemoryRow(
            "engine: cache of replies",
            dict.fromkeys(phases, memory.cache),
            "engine.options, sampling.max_tokens",
        ),
        MemoryRow(
            "engine: prompts and results",
            dict.fromkeys(phases, memory.temporary),
            "engine.options.max_batch, environment.max_prompt_tokens",
        ),
    ]


def trainer_rows(memory: TrainerMemory, *, in_use_only: bool) -> list[MemoryRow]:
    """Return the rows of a rank of a trainer.

    in_use_only: whether the reference is on the device only while it is used.
    """

    def always(size: int) -> dict[str, int]:
        return dict.fromkeys(PHASES, size)

    passes = (SCORING, TRAINING)
    reference = {SCORING: memory.reference} if in_use_only else always(memory.reference)
    temporary = {SCORING: memory.scoring, TRAINING: memory.temporary, UPDATE: memory.publishing}
    return [
        MemoryRow("weights", always(memory.weights), "model.path, model.dtype, more ranks"),
        MemoryRow("fp32 master weights", always(memory.masters), "trainer.offload, trainer.lora, more ranks"),
        MemoryRow("summed gradients", always(memory.gradients), "trainer.offload, trainer.lora, more ranks"),
        MemoryRow("moments of AdamW", always(memory.moments), "trainer.offload, trainer.lora, more ranks"),
        MemoryRow("reference model", reference, "algorithm.kl_coef, trainer.offload, more ranks"),
        MemoryRow("gathered weights", dict.fromkeys(passes, memory.gathered), "model.path"),
        MemoryRow(
            "tokens of a step",
            dict.fromkeys(passes, memory.tokens),
            "trainer.prompts_per_step, sampling.max_tokens",
        ),
        MemoryRow(
            "activations",
            {TRAINING: memory.activations},
            "trainer.activation_checkpointing, trainer.micro_batch_tokens",
        ),
        MemoryRow(
            "logits, results of a layer", temporary, "trainer.micro_batch_tokens, trainer.logits_per_chunk"
        ),
    ]
