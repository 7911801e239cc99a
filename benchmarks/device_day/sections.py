"""The sections of a device day, in the order in which they run. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Section(NamedTuple):
    """A part that runs in its own process.

    function: ``module:function`` below this package, which gets a :class:`SectionContext`. limit_s,
    small_limit_s: the most seconds, of a run on a device and of the rehearsal.
    """

    name: str
    function: str
    limit_s: int
    small_limit_s: int
    content: str


SECTIONS = [
    Section(
        "machine",
        "machine:describe_machine",
        40,
        30,
        "The device, the driver, the versions of the packages, and the commit.",
    ),
    Section(
        "agreement",
        "agreement:compare_with_cpu",
        90,
        60,
        "Log-probs of reply tokens in nats, and the gradient of an on-policy loss, against the CPU in float32. An "
        "error of gradients is the norm of the difference divided by the norm. The CPU in bfloat16 shows what "
        "rounding alone causes.",
    ),
    Section(
        "attention",
        "attention:compare_kernels",
        100,
        60,
        "Each kernel of packed attention against plain matrix products in blocks in float32: norm of the "
        "difference divided by the norm, for the output and for the gradients of queries, keys, values and sinks. "
        "Then the time of forward and backward passes of one layer over one sequence.",
    ),
    Section(
        "memory",
        "memory:measure_memory",
        180,
        60,
        "One training step (log-probs, gradients, AdamW) with one sequence. GiB before it: weights, masters and "
        "moments. Then the peak of the step above that. On a CPU the peak is that of the process so far. `plain "
        "Hugging Face`: the model's logits, `log_softmax` and the backward pass, without an optimizer.",
    ),
    Section(
        "generation",
        "generation_speed:measure_generation",
        150,
        60,
        "Sampled tokens per second, with up to 8 replies to each prompt, and milliseconds per token of a reply. "
        "Hugging Face is `generate` with the same model.",
    ),
    Section(
        "weights",
        "weight_updates:measure_updates",
        100,
        60,
        "New weights for an embedded engine that generates. Pause: seconds without generation.",
    ),
    Section(
        "sleep",
        "sleep:measure_sleep",
        80,
        60,
        "Memory at the end of each of 20 steps of generation, training and weight update, with torch's unused "
        "memory returned. Growth is from the third step to the last: a leak would show there.",
    ),
    Section(
        "vllm",
        "vllm:measure_vllm",
        240,
        30,
        "The same for vLLM on the same device: generation, weight updates, and the device's memory while it "
        "sleeps and when it is awake. Nothing if vLLM is not installed.",
    ),
    Section(
        "steps",
        "steps:measure_steps",
        80,
        60,
        "Synchronous training steps by part. Each judged program is the problem's reference, every second one "
        "with an error at its end. Hidden: the share of the time with programs in judgement that passes before "
        "the last reply ends. Log-probs: one pass without gradients, which only runs with several updates per "
        "batch. Gap: the mean difference of the engine's log-probs from the trainer's, in nats.",
    ),
    Section(
        "resume",
        "resume:measure_resume",
        120,
        90,
        "`whetstone train`, killed with SIGKILL and started again, against the same run without a kill.",
    ),
    Section(
        "large",
        "steps:measure_large_steps",
        320,
        60,
        "As `steps`, for 20 steps of a model of the shape of Qwen2.5-1.5B with random weights. About one token in "
        "300 of its vocabulary ends a reply.",
    ),
]

NAMES = [section.name for section in SECTIONS]


def limit_of(section: Section, *, small: bool) -> int:
    """Return the most seconds of a section."""
    return section.small_limit_s if small else section.limit_s


def chosen_sections(names: Sequence[str]) -> list[Section]:
    """Return the sections of these names in their usual order; the machine is always described first."""
    return [section for section in SECTIONS if section.name == "machine" or section.name in names]
