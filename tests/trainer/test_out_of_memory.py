"""Memory that does not suffice is told with the phase, the device, the tokens and the keys that help."""

from __future__ import annotations

import asyncio
import resource
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from tests.trainer.test_checkpoints import tokenizer
from tests.trainer.tiny_models import sample, tiny_llama
from tests.warm_command import warm_server
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.core.sample import Batch, Group
from whetstone.core.settings import Sampling
from whetstone.engine.engine import GenerationRequest
from whetstone.engine.out_of_memory import is_out_of_memory
from whetstone.engine.torch_engine import TorchEngine
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

pytestmark = pytest.mark.process

SPARE = 100 * 2**20


def said_within(spare: int, case: str) -> str:
    """What a process of its own says that may take ``spare`` bytes of address space for its work.

    Off a server and not off this process, whose heap may hold enough freed memory for it.
    """
    context = warm_server()
    hearing, telling = context.Pipe(duplex=False)
    child = context.Process(target=_tell, args=(telling, spare, case))
    child.start()
    telling.close()
    try:
        return hearing.recv()
    finally:
        child.join()


def _tell(telling: Connection, spare: int, case: str) -> None:
    try:
        torch.set_num_threads(1)
        work = CASES[case][0]()
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + spare, taken + spare))
        try:
            work()
            telling.send("it was enough")
        except UserError as error:
            telling.send(str(error))
    except BaseException:
        telling.send(traceback.format_exc())


def a_step() -> Callable[[], None]:
    settings = TrainerSection(lr=1e-3, micro_batch_tokens=2000)
    model = tiny_llama(vocab_size=30_000)
    spec = algorithm_named("dapo", {"overlong_buffer": 0})
    trainer = Trainer(model, spec, settings, temperature=1.0, max_tokens=400)
    replies = [sample([5 + i] * 300, float(i % 2)) for i in range(4)]
    return lambda: void(trainer.step(Batch([Group("g", [1, 2, 3], replies)])))


def a_prompt() -> Callable[[], None]:
    model = tiny_llama(intermediate_size=40_000, max_position_embeddings=4096)
    engine = TorchEngine(model, tokenizer(), cache_mb=64)

    async def ask() -> None:
        request = GenerationRequest([7] * 2001, Sampling(max_tokens=2))
        async for _ in engine.generate(request):
            pass

    return lambda: asyncio.run(ask())


def void(_: object) -> None: ...


CASES = {
    "training": (
        a_step,
        (
            "on `cpu` in training on a micro-batch: 1199 tokens, 302 in the longest sequence",
            "trainer.micro_batch_tokens",
            "resumes from the last checkpoint",
        ),
    ),
    "sampling": (
        a_prompt,
        (
            "on `cpu` in reading prompts: 0 tokens of 0 running replies, 1 replies waiting",
            "engine.options.max_batch",
        ),
    ),
}


@pytest.mark.extended
@pytest.mark.parametrize("case", CASES)
def test_a_full_memory_names_phase_device_tokens_and_keys(case: str) -> None:
    said = said_within(SPARE, case)
    assert said.startswith("out of memory on")
    assert all(word in said for word in CASES[case][1]), said
    assert said_within(40 * SPARE, case) == "it was enough"


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("NPU out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), True),
        (MemoryError(), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), False),
        (ValueError("out of memory of what?"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_out_of_memory_errors_are_recognized(error: Exception, full: bool) -> None:
    assert is_out_of_memory(error) == full
