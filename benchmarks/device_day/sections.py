"""The sections of a device day, in the order in which they run. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Section(NamedTuple):
    """A part that runs in its own process.

    function: ``module:function`` below this package, which gets a ``SectionContext``. limit_s: the most
    seconds on a device; a rehearsal has no limit for a section. content: what its figures are.
    """

    name: str
    function: str
    limit_s: int
    content: str


_MACHINE = "The device, the driver, the versions of the packages, and the commit."

_AGREEMENT = """Log-probs of reply tokens in nats, and the gradient of an on-policy loss, against the CPU in
float32. The error of a gradient is the norm of the difference divided by the norm. The row of the CPU in
bfloat16 shows what rounding alone causes."""

_ATTENTION = """Each kernel of packed attention against plain matrix products in blocks in float32: the norm
of the difference divided by the norm, for the output and the gradients of queries, keys, values and sinks.
Then the time of a forward and a backward pass of one layer over one sequence."""

_LOG_PROBS = """From the hidden states of one row to log-probs, and back to gradients, by chunks of logits.
Errors are against float32 on the device: the norm of the difference divided by the norm. The peak is above
the memory before; on a CPU it is that of the process."""

_MEMORY = """One training step (log-probs, gradients, AdamW) with one sequence. GiB before it (weights,
masters and moments), then the peak of the step above that. On a CPU the peak is that of the process so far.
*Plain Hugging Face* is the model's logits, `log_softmax` and the backward pass, without an optimizer."""

_GENERATION = """Sampled tokens per second, with up to 8 replies to each prompt, and milliseconds per token
of a reply. Hugging Face is `generate` with the same model."""

_DECODING = """Milliseconds per sampled token of a model of the shape of SmolLM2-135M, those in which the
device computes, and the calls of the CUDA runtime. The log has the functions in which the host spends a
step."""

_WEIGHTS = """New weights for an embedded engine: from this process, as between two synchronous steps, and as
published versions over loopback while it generates. Pause: seconds without generation."""

_SLEEP = """Memory in each of 20 steps of generation, training and weight update, with torch's unused memory
returned. Growth is from the third step to the last: a leak shows there."""

_VLLM = """The same for vLLM on the trainer's device: generation, weight updates, and memory while it sleeps
and when it is awake."""

_STEPS = """Synchronous training steps by part, in seconds. Every judged program is the problem's reference,
every second one with an error at its end. *Hidden* is the share of the time with programs in judgement that
passes before the last reply ends. *Log-probs* is one pass without gradients, which is no part of these
steps: it runs with several updates per batch. *Gap* is the mean difference of the engine's log-probs from
the trainer's, in nats."""

_RESUME = """`whetstone train`, killed with SIGKILL and started again. It makes the steps since its checkpoint
twice, and must record each step once."""

_LARGE = """As `steps`, with 20 steps of a model of the shape of Qwen2.5-1.5B with random weights. One token
in 150 of its vocabulary ends a reply."""

SECTIONS = [
    Section("machine", "machine:describe_machine", 40, _MACHINE),
    Section("agreement", "agreement:compare_with_cpu", 100, _AGREEMENT),
    Section("attention", "attention:compare_kernels", 150, _ATTENTION),
    Section("log-probs", "log_probs:compare_operations", 40, _LOG_PROBS),
    Section("memory", "memory:measure_memory", 170, _MEMORY),
    Section("generation", "generation_speed:measure_generation", 150, _GENERATION),
    Section("decoding", "decoding:profile_decoding", 60, _DECODING),
    Section("weights", "weight_updates:measure_updates", 90, _WEIGHTS),
    Section("sleep", "sleep:measure_sleep", 80, _SLEEP),
    Section("vllm", "vllm:measure_vllm", 170, _VLLM),
    Section("steps", "steps:measure_steps", 80, _STEPS),
    Section("resume", "resume:measure_resume", 110, _RESUME),
    Section("large", "steps:measure_large_steps", 260, _LARGE),
]

NAMES = [section.name for section in SECTIONS]


def chosen_sections(names: Sequence[str]) -> list[Section]:
    """Return the sections of these names in their usual order; the machine is always described first."""
    return [section for section in SECTIONS if section.name == "machine" or section.name in names]
