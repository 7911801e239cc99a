"""The records of ``metrics.jsonl`` for training steps and evaluations."""

from __future__ import annotations

from typing import Any

from whetstone.engine.memory import peak_bytes
from whetstone.evaluate.results import Evaluation
from whetstone.report.batch import batch_metrics
from whetstone.rollout.flow import FlowBatch


def train_record(
    step: int,
    drawn: FlowBatch,
    metrics: dict[str, float],
    seconds: dict[str, float],
    staleness: int | None = None,
) -> dict[str, Any]:
    """Return the record of a training step. All values that depend on clock or machine are under ``time``.

    ``time.judge`` is CPU seconds of the judged programs; judging overlaps generation, so it is no phase of
    its own. ``time.tokens_per_s`` counts generated reply tokens, ``time.train_tokens_per_s`` trained ones.
    ``time.peak_bytes`` is the peak memory so far.

    staleness: the bound, in a run with a flow; token rates then refer to the whole step. Above 0,
    ``staleness/*`` reports by how many versions the weights were ahead of a trained group's oldest token.
    """
    sampling = seconds["generate"] if staleness is None else seconds["step"]
    samples = [sample for group in drawn.sampled for sample in group.samples]
    judged = (case.cpu_s for s in samples if s.judgement for case in s.judgement.cases)
    tokens = sum(sample.length for sample in samples)
    clock = dict(seconds) | {
        "judge": sum(judged),
        "tokens_per_s": tokens / max(sampling, 1e-9),
        "train_tokens_per_s": metrics["tokens"] / max(seconds["train"], 1e-9),
        "peak_bytes": peak_bytes(),
    }
    record: dict[str, Any] = {"step": step, "kind": "train", "time": clock}
    record |= batch_metrics(drawn.sampled, drawn.batch)
    if staleness:
        behind = [group.meta["staleness"] for group in drawn.batch.groups]
        known = [each for each in behind if each is not None]
        if known:
            record |= {"staleness/mean": sum(known) / len(known), "staleness/max": max(known)}
    record |= {f"loss/{name}": value for name, value in metrics.items()}
    return record


def eval_record(step: int, evaluations: dict[str, Evaluation], seconds: float) -> dict[str, Any]:
    """Return the record of an evaluation on the named problem sets."""
    record: dict[str, Any] = {"step": step, "kind": "eval", "time": {"eval": seconds}}
    for name, evaluation in evaluations.items():
        record |= evaluation.metrics(name)
    return record
