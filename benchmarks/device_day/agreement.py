"""The device's log-probs and gradients against the CPU's."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.device_day.context import SectionContext
from benchmarks.device_day.workload import dtype_name, kernel_name, layer_of, trained_or_random
from benchmarks.trl_step import problems, question
from whetstone.trainer.forward import Forward
from whetstone.trainer.packing import PromptReplies


class _Found(NamedTuple):
    """[tokens] log-probs, and gradients by name, in float32 on the CPU."""

    log_probs: Tensor
    gradients: dict[str, Tensor]


def compare_with_cpu(context: SectionContext) -> None:
    """Record the differences of every dtype of the device from the CPU in float32."""
    cpu = torch.device("cpu")
    loaded = trained_or_random(context, device=cpu, dtype=torch.float32)
    replies = _replies(loaded.tokenizer, groups=2 if context.small else 4)
    context.note(
        model=loaded.source,
        groups=len(replies),
        replies=sum(len(group.replies) for group in replies),
        tokens=sum(len(ids) for group in replies for ids in group.replies),
    )
    expected = _compute(loaded.model, replies)
    kinds = [(cpu, torch.bfloat16)]
    if context.device.type != "cpu":
        kinds += [(context.device, torch.float32), (context.device, torch.bfloat16)]
    for device, dtype in kinds:
        with context.attempt(device=device.type, dtype=dtype_name(dtype)):
            model = trained_or_random(context, device=device, dtype=dtype).model
            found = _compute(model, replies)
            context.record(
                device=device.type,
                dtype=dtype_name(dtype),
                kernel=kernel_name(layer_of(model)),
                **_differences(found, expected),
            )


def _replies(tokenizer: Any, groups: int) -> list[PromptReplies]:
    """Return groups of four references each: that of the prompt's problem, and others."""
    tasks = problems(8 * groups)
    programs = [tokenizer(task.references[0].source)["input_ids"] for task in tasks]
    return [
        PromptReplies(tokenizer(question(tasks[n]))["input_ids"], programs[n : n + 4]) for n in range(groups)
    ]


def _compute(model: Any, groups: list[PromptReplies]) -> _Found:
    """Return the log-probs, and the gradient of the mean of -advantage * log-prob, where replies have
    alternating advantages: that of a policy loss before its first update."""
    forward = Forward(model, temperature=1.0)
    lengths = [len(ids) for group in groups for ids in group.replies]
    signs = [1.0 - 2.0 * (number % 2) for number in range(len(lengths))]
    advantages = torch.tensor(signs).repeat_interleave(torch.tensor(lengths)).to(model.device)
    batches = forward.pack(groups, micro_batch_tokens=2048)
    log_probs = forward.log_probs(batches, sum(lengths)).float().cpu()
    for batch in batches:
        for scores in forward.scores(batch):
            (-(advantages[scores.places] * scores.log_probs).sum() / sum(lengths)).backward()
    slopes = {name: p.grad.float().cpu() for name, p in model.named_parameters() if p.grad is not None}
    return _Found(log_probs, slopes)


def _differences(found: _Found, expected: _Found) -> dict[str, Any]:
    gaps = (found.log_probs - expected.log_probs).abs()
    names = expected.gradients.keys()
    if names != found.gradients.keys():
        raise ValueError("the gradients are of other weights than the CPU's")
    errors = {name: found.gradients[name] - expected.gradients[name] for name in names}
    shares = {name: float(errors[name].norm() / expected.gradients[name].norm()) for name in names}
    worst = max(shares, key=lambda name: shares[name])
    total = sum(float(tensor.norm()) ** 2 for tensor in errors.values()) ** 0.5
    size = sum(float(tensor.norm()) ** 2 for tensor in expected.gradients.values()) ** 0.5
    return {
        "log-prob, mean": float(gaps.mean()),
        "log-prob, largest": float(gaps.max()),
        "gradient": total / size,
        "worst weight": shares[worst],
        "its name": worst,
    }
