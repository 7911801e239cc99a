"""The records of ``metrics.jsonl`` for training steps and evaluations."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import compress
from typing import Any

from whetstone.core.sample import Batch
from whetstone.engine.memory import peak_bytes
from whetstone.evaluate.results import Evaluation
from whetstone.report.batch import batch_metrics
from whetstone.report.ledger import LEDGER
from whetstone.rollout.protocol import FlowBatch, FlowReport


def train_record(
    step: int,
    drawn: FlowBatch,
    metrics: dict[str, float],
    seconds: dict[str, float],
    report: FlowReport,
    staleness: int | None = None,
    special_tokens: AbstractSet[int] = frozenset(),
) -> dict[str, Any]:
    """Return the record of a training step. All values that depend on clock or machine are under ``time``.

    ``time.judge`` is CPU seconds of the judged programs; judging overlaps generation, so it is no phase of
    its own. ``time.tokens_per_s`` counts generated reply tokens, ``time.train_tokens_per_s`` trained ones.
    ``time.peak_bytes`` is the peak memory so far. ``time.ledger/*`` is the account of all tokens so far, and
    depends on faults.

    staleness: the bound, in a run with a flow; token rates then refer to the whole step. Above 0,
    ``staleness/*`` reports by how many versions the weights were ahead of a trained group's oldest token and
    of the trained tokens, and what the composition of batches has cost so far.

    special_tokens: token ids that have no meaning within a reply, see ``batch_metrics``.
    """
    sampling = seconds["generate"] if staleness is None else seconds["step"]
    samples = [sample for group in drawn.sampled for sample in group.samples]
    judged = (case.cpu_s for s in samples if s.judgement for case in s.judgement.cases)
    tokens = sum(sample.length for sample in samples)
    clock = (
        dict(seconds)
        | dict(report.roles)
        | {
            "judge": sum(judged),
            "tokens_per_s": tokens / max(sampling, 1e-9),
            "train_tokens_per_s": metrics["tokens"] / max(seconds["train"], 1e-9),
            "peak_bytes": peak_bytes(),
        }
    )
    clock |= {f"{LEDGER}{name}": count for name, count in report.tokens.items()}
    record: dict[str, Any] = {"step": step, "kind": "train", "time": clock}
    record |= batch_metrics(drawn.sampled, drawn.batch, special_tokens)
    if staleness:
        record |= _staleness(step, drawn.batch)
        record |= {f"staleness/{name}": value for name, value in report.composition.items()}
    record |= {f"loss/{name}": value for name, value in metrics.items()}
    return record


def _staleness(step: int, batch: Batch) -> dict[str, float]:
    """Return by how many versions the weights of the step's start were ahead of the oldest token of a group,
    and of a token. Tokens that are too old do not count."""
    by_group = [
        [
            step - 1 - version
            for sample in group.samples
            for version in compress(sample.versions, sample.trainable(batch.oldest))
        ]
        for group in batch.groups
    ]
    oldest = [max(ages) for ages in by_group if ages]
    if not oldest:
        return {}
    return {
        "staleness/mean": sum(oldest) / len(oldest),
        "staleness/max": max(oldest),
        "staleness/token_age": sum(map(sum, by_group)) / sum(map(len, by_group)),
    }


def eval_record(step: int, evaluations: dict[str, Evaluation], seconds: float) -> dict[str, Any]:
    """Return the record of an evaluation on the named problem sets."""
    record: dict[str, Any] = {"step": step, "kind": "eval", "time": {"eval": seconds}}
    for name, evaluation in evaluations.items():
        record |= evaluation.metrics(name)
    return record
