"""What trainer and engine make on a device is made there: on a stand-in, which takes no other's tensors."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from functools import wraps
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

from tests.trainer.stand_in_device import Elsewhere, moved, stand_in_device
from tests.trainer.test_checkpoints import tokenizer
from tests.trainer.tiny_models import random_batch, tiny_llama
from tests.warm_command import warm_server
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.host_copies import HostCopies
from whetstone.engine.torch_engine import TorchEngine
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer

pytestmark = pytest.mark.process


def apart(test: Callable[..., None]) -> Callable[..., None]:
    """The test in a process of its own: the device is registered for good, and has threads of its own.

    Off a server and not off this process, where torch may have counted the devices for good.
    """
    _TESTS[test.__name__] = test

    @wraps(test)
    def elsewhere(**given: Any) -> None:
        context = warm_server()
        hearing, telling = context.Pipe(duplex=False)
        child = context.Process(target=_tell, args=(telling, test.__name__, given))
        child.start()
        telling.close()
        try:
            assert hearing.recv() == "passed"
        finally:
            child.join()

    return elsewhere


_TESTS: dict[str, Callable[..., None]] = {}


def _tell(telling: Connection, name: str, given: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    try:
        _TESTS[name](**given)
        telling.send("passed")
    except BaseException:
        telling.send(traceback.format_exc())


def untied(**changes: Any) -> Any:
    return tiny_llama(tie_word_embeddings=False, max_position_embeddings=64, **changes)


def trainer(model: Any, preset: str, **settings: Any) -> Trainer:
    own = {"kl_coef": 0.1} if preset == "grpo" else {}
    return Trainer(
        model,
        algorithm_named(preset, {"overlong_buffer": 0, **own}),
        TrainerSection(lr=1e-3, minibatches=2, epochs=2, **settings),
        temperature=0.8,
        max_tokens=12,
    )


def plain(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: t.here if isinstance(t, Elsewhere) else t for name, t in state.items()}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("preset", "settings"),
    [("grpo", {"offload": True}), ("m2po", {}), ("reinforce_pp", {"attention": "model"})],
    ids=["grpo, offloaded", "m2po", "reinforce_pp, padded"],
)
@apart
def test_a_step_on_a_device_is_that_on_the_cpu(preset: str, settings: dict[str, Any]) -> None:
    start = masters(trainer(untied(), preset))
    here = trainer(untied(), preset, **(settings | {"offload": False}))
    there = trainer(moved(untied()), preset, **settings)
    expected, found = (one.step(random_batch(0)) for one in (here, there))
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert all(isinstance(parameter, Elsewhere) for parameter in there.model.parameters())
    moved_by = (masters(here) - start).norm()
    assert (masters(there) - masters(here)).norm() < 1e-3 * moved_by


def masters(one: Trainer) -> torch.Tensor:
    state = plain(one.state_dict())
    return torch.cat([state[name].flatten() for name in sorted(state) if name.startswith("master/")])


@pytest.mark.extended
@apart
def test_offloaded_state_is_on_the_cpu_and_equal() -> None:
    off, on = (trainer(moved(untied()), "grpo", offload=offload) for offload in (True, False))
    for one in (off, on):
        one.step(random_batch(0))
    state, whole = off.state_dict(), on.state_dict()
    assert not any(isinstance(tensor, Elsewhere) for tensor in state.values())
    assert all(isinstance(whole[name], Elsewhere) for name in whole if name.startswith("master/"))
    assert all(torch.equal(tensor, plain(whole)[name]) for name, tensor in state.items())
    assert off._reference is not None
    assert not any(isinstance(parameter, Elsewhere) for parameter in off._reference.model.parameters())


def test_offload_from_the_cpu_is_refused() -> None:
    with pytest.raises(UserError, match=r"trainer.offload: the model is on the CPU.*set it to false"):
        trainer(untied(), "grpo", offload=True)


def replies(model: Any) -> list[Completion]:
    engine = TorchEngine(model, tokenizer(), cache_mb=8)

    async def ask() -> list[Completion]:
        found: list[Completion] = []
        for prompt in ([3, 4, 5], [6]):
            request = GenerationRequest(prompt, Sampling(max_tokens=8, top_p=0.9, temperature=0.7), n=4)
            found += [completion async for completion in engine.generate(request)]
        await engine.update_weights(model.named_parameters(), 1)
        await engine.close()
        return sorted(found, key=lambda each: each.token_ids)

    return asyncio.run(ask())


@apart
def test_replies_on_a_device_are_those_on_the_cpu() -> None:
    here, there = replies(untied()), replies(moved(untied()))
    assert [each.token_ids for each in here] == [each.token_ids for each in there]
    for one, other in zip(here, there, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


@apart
def test_the_stand_in_refuses_operands_on_two_devices() -> None:
    with pytest.raises(RuntimeError, match="operands on two devices"):
        torch.add(torch.ones(3, device=stand_in_device()), torch.ones(3))


@apart
def test_copies_to_the_host_are_complete_at_the_end_and_few_are_under_way() -> None:
    tensors = {str(i): torch.full((3,), float(i), dtype=torch.bfloat16) for i in range(6)}
    found: list[torch.Tensor] = []
    stand_in_device()
    copies = HostCopies()
    for started, tensor in enumerate(tensors.values()):
        copies.start(Elsewhere(tensor), lambda copy: found.append(copy.clone()), torch.float32)
        assert len(found) == max(0, started - 1)
    copies.finish()
    assert [copy.tolist() for copy in found] == [tensor.tolist() for tensor in tensors.values()]
    assert {copy.dtype for copy in found} == {torch.float32}
