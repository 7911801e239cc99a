"""Decoding with fixed shapes gives the replies of the eager batch, and never waits within a step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.tiny_models import byte_tokenizer, tiny_model
from tests.families.tiny_families import DIFFERENT, FAMILIES, tiny_family
from whetstone.core.settings import Sampling
from whetstone.engine.architecture import rope_limits
from whetstone.engine.batches import Row, Ticket
from whetstone.engine.block_pool import BLOCK, BlockPool, blocks_for
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.kv_cache import PromptCache, PromptKV
from whetstone.engine.scheduler import Scheduler
from whetstone.engine.static_batch import StaticBatch, Step, StepShape
from whetstone.engine.static_steps import CapturedSteps, EagerSteps, supports_static
from whetstone.engine.stopping import StopRule

Build = Callable[..., Any]
VARIANTS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"temperature": 0.0},
    {"top_p": 0.8},
    {"temperature": 1.3, "top_k": 7},
    {"top_k": 20, "top_p": 0.9},
]


def scheduler(model: Any, **options: Any) -> Scheduler:
    return Scheduler(
        model, byte_tokenizer(), max_batch=7, cache_bytes=1 << 24, rope=rope_limits(model), **options
    )


def requests(seed: int, vocabulary: int = 256, **fields: Any) -> list[GenerationRequest]:
    """Prompts and replies shorter and longer than a block, with all kinds of sampling."""
    rng = random.Random(seed)
    return [
        GenerationRequest(
            [rng.randrange(vocabulary) for _ in range(rng.choice((1, 5, BLOCK, BLOCK + 1, 70)))],
            Sampling(max_tokens=rng.choice((1, 3, BLOCK, 50)), **rng.choice(VARIANTS), **fields),
            n=rng.randint(1, 4),
            seed=number,
            supports=rng.random() < 0.5,
        )
        for number in range(8)
    ]


def replies(tested: Scheduler, asked: list[GenerationRequest]) -> dict[tuple[int, int], Completion]:
    tickets = [Ticket(request) for request in asked]
    for ticket in tickets:
        tested.add(ticket)
    found: dict[tuple[int, int], Completion] = {}
    while tested.busy:
        for ticket, reply in tested.step(0):
            found[tickets.index(ticket), reply.index] = reply
    return found


def assert_equal(found: dict[Any, Completion], expected: dict[Any, Completion]) -> None:
    assert found.keys() == expected.keys()
    for key, reply in expected.items():
        assert found[key].token_ids == reply.token_ids, key
        assert found[key].finish_reason == reply.finish_reason
        assert found[key].versions == reply.versions
        assert found[key].supports == reply.supports
        assert found[key].logprobs == pytest.approx(reply.logprobs, abs=1e-5)


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma3_text"])
def test_replies_are_those_of_the_eager_batch(architecture: str, ahead: int) -> None:
    # So exact that the rounding of attention does not tip a draw.
    model = tiny_model(architecture, dtype=torch.float64)
    for seed in range(2):
        asked = requests(seed, stop=("e", "\n\n"))
        expected = replies(scheduler(model, static=False), asked)
        assert_equal(replies(scheduler(model, static=True, ahead=ahead), asked), expected)


@pytest.mark.drawn(6, always=DIFFERENT)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_replies_of_the_eager_batch(family: str) -> None:
    model = tiny_family(family).double()
    if not supports_static(model, rope_limits(model)):
        pytest.skip("this family decodes eagerly")
    asked = requests(3, vocabulary=60)
    expected = replies(scheduler(model, static=False), asked)
    assert_equal(replies(scheduler(model, static=True, ahead=1), asked), expected)


@pytest.mark.parametrize("ahead", [0, 1])
def test_new_weights_count_from_the_next_step_on(ahead: int) -> None:
    """A step that is in flight keeps its version, and the replies are those of the eager batch."""
    other = tiny_model("llama", seed=1, dtype=torch.float64)

    def updated(**options: Any) -> dict[int, Completion]:
        model = tiny_model("llama", dtype=torch.float64)
        tested = scheduler(model, **options)
        tested.add(Ticket(GenerationRequest([1, 2, 3], Sampling(max_tokens=40), n=5)))
        found: dict[int, Completion] = {}
        for step in range(100):
            if step in (4, 21):
                model.load_state_dict(other.state_dict())
                tested.forget_prompts()
            found.update({reply.index: reply for _, reply in tested.step(step // 4 if step < 40 else 10)})
        return found

    assert_equal(updated(static=True, ahead=ahead), updated(static=False))


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_request_that_leaves_changes_no_other_reply(ahead: int) -> None:
    model = tiny_model("llama", dtype=torch.float64)
    asked = requests(5)
    expected = replies(scheduler(model, static=False), asked[1:])
    tested = scheduler(model, static=True, ahead=ahead)
    tickets = [Ticket(request) for request in asked]
    for ticket in tickets:
        tested.add(ticket)
    found: dict[tuple[int, int], Completion] = {}
    steps = 0
    while tested.busy:
        steps += 1
        if steps == 3:
            tested.cancel(tickets[0])
        for ticket, reply in tested.step(0):
            if ticket is not tickets[0]:
                found[tickets.index(ticket) - 1, reply.index] = reply
    assert_equal(found, expected)


def test_logits_that_are_not_finite_are_an_error() -> None:
    model = tiny_model("llama")
    tested = scheduler(model, static=True)
    tested.add(Ticket(GenerationRequest([1, 2], Sampling(max_tokens=9))))
    tested.step(0)
    with torch.no_grad():
        model.model.embed_tokens.weight.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="not finite"):
        tested.step(1)


ONE_TOKEN = PromptKV(1, {0: torch.zeros(1, 1, 2)}, {0: torch.zeros(1, 1, 2)})


@given(st.lists(st.tuples(st.integers(0, 3 * BLOCK), st.integers(1, 3), st.integers(0, 9)), max_size=30))
def test_no_block_has_two_owners_and_all_come_back(steps: list[tuple[int, int, int]]) -> None:
    pool = BlockPool(60, ONE_TOKEN)
    held: list[list[int]] = []
    shared: dict[int, int] = Counter()
    for length, rows, ending in steps:
        if blocks_for(length) * rows <= pool.free:
            stored = torch.zeros(1, length, 2)
            added = pool.add_prompt(PromptKV(length, {0: stored}, {0: stored}), rows)
            whole = length // BLOCK
            assert all(blocks[:whole] == added[0][:whole] for blocks in added)
            own = [block for blocks in added for block in blocks[whole:]]
            taken = {block for blocks in held for block in blocks}
            assert len(set(own)) == len(own)
            assert not taken & {*own, *added[0]}
            assert 0 not in {*own, *added[0]}
            held += added
        if held:
            pool.release(held.pop(ending % len(held)))
    for blocks in held:
        pool.release(blocks)
    assert pool.free == pool.count
    assert not shared


VIEWS = {
    *(
        "alias",
        "detach",
        "expand",
        "lift_fresh",
        "promote_types",
        "reshape",
        "select",
        "slice",
        "squeeze",
        "to",
    ),
    *("transpose", "unsqueeze", "view"),
}
"""Operators that compute nothing."""

WAITING = {"_local_scalar_dense", "nonzero", "is_nonzero", "item", "equal"}
"""Operators whose result the host needs."""


class CountedOperators(TorchDispatchMode):
    """Counts the operators that the host launches, and names those for which it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.launched = 0
        self.waiting: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).split(".")[1]
        self.launched += name not in VIEWS
        if name in WAITING:
            self.waiting.append(name)
        return func(*args, **(kwargs or {}))


class CountedSteps(EagerSteps):
    """Counts the operators of each step."""

    def __init__(self) -> None:
        self.inside: list[int] = []

    def run(self, shape: StepShape, step: Step) -> Any:
        with CountedOperators() as counted:
            result = step()
        self.inside.append(counted.launched)
        return result


def llama_token(model: Any) -> PromptKV:
    cache = PromptCache()
    with torch.inference_mode():
        model.base_model(input_ids=torch.zeros(1, 1, dtype=torch.long), past_key_values=cache, use_cache=True)
    return cache.prompt(0, 1, b"")


def row(prompt: list[int], **sampling: Any) -> Row:
    ticket = Ticket(GenerationRequest(prompt, Sampling(max_tokens=200, **sampling)))
    return Row(ticket, 0, StopRule(None, frozenset(), ticket.request.params), random.Random(0), prompt[-1])


def static_batch(model: Any, steps: EagerSteps, *, ahead: int) -> StaticBatch:
    batch = StaticBatch(model, 1 << 14, llama_token(model), steps, ahead=ahead)
    batch.reserve(8, 40, 200)
    return batch


def launches(layers: int, **sampling: Any) -> tuple[int, int]:
    """The operators within a step, the same in all, and the most outside of one while rows join and end."""
    model = tiny_model("llama", num_hidden_layers=layers)
    steps = CountedSteps()
    batch = static_batch(model, steps, ahead=1)
    outside: list[int] = []
    for number in range(80):
        if number % 5 == 0 and len(batch.rows) < 8:
            batch.add(PromptKV(0), [row([number + 1], **sampling)])
        if number % 11 == 10:
            batch.keep(list(range(1, len(batch.rows))))
        with torch.inference_mode(), CountedOperators() as counted:
            batch.draw(0, None)
        outside.append(counted.launched - steps.inside[-1])
        assert counted.waiting == []
    [inside] = set(steps.inside)
    return inside, max(outside)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("sampling", VARIANTS)
def test_a_step_launches_few_operators_and_waits_for_none(sampling: dict[str, Any]) -> None:
    few, outside = launches(2, **sampling)
    more, _ = launches(4, **sampling)
    assert outside <= 8
    assert few + 28 * (more - few) // 2 <= 1300


class CompiledSteps(EagerSteps):
    """Compiles each shape of step as one graph, which fails if it waits or branches on a value."""

    def __init__(self, backend: str) -> None:
        self._backend = backend

    def run(self, shape: StepShape, step: Step) -> Any:
        return torch.compile(step, fullgraph=True, backend=self._backend)()


@pytest.mark.parametrize(
    "backend", ["eager", pytest.param("inductor", marks=[pytest.mark.extended, pytest.mark.process])]
)
def test_a_step_is_one_graph(backend: str, build_model: Build) -> None:
    model = build_model("llama")

    def drawn(steps: EagerSteps) -> list[tuple[int, float]]:
        batch = static_batch(model, steps, ahead=0)
        batch.add(PromptKV(0), [row([5]), row([7], temperature=0.5)])
        with torch.no_grad():
            return [(each.token, round(each.logprob, 3)) for _ in range(3) for each in batch.draw(0, None)]

    assert drawn(CompiledSteps(backend)) == drawn(EagerSteps())


class RecordedGraph:
    """A CUDA graph that only counts how often it is replayed."""

    def __init__(self) -> None:
        self.replayed = 0

    def replay(self) -> None:
        self.replayed += 1

    def pool(self) -> str:
        return "memory"


def test_a_shape_of_step_is_captured_once_and_replayed_until_its_tensors_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphs: list[RecordedGraph] = []
    pools: list[Any] = []

    def new_graph() -> RecordedGraph:
        graphs.append(RecordedGraph())
        return graphs[-1]

    def capture(graph: RecordedGraph, *, pool: Any, capture_error_mode: str) -> Any:
        pools.append(pool)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", new_graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    executed: list[StepShape] = []
    steps = CapturedSteps()

    def run(shape: StepShape) -> None:
        def step() -> Any:
            executed.append(shape)
            return torch.zeros(1), torch.zeros(1)

        steps.run(shape, step)

    small, large = (StepShape(rows, 1, truncates=False, greedy=False) for rows in (8, 16))
    for shape in (small, small, small, large, small, large, large):
        run(shape)
    # Each is executed at its first use, and once more while it is captured.
    assert executed == [small, small, large, large]
    assert [graph.replayed for graph in graphs] == [3, 2]
    assert pools == [None, "memory"]
    steps.forget()
    run(small)
    run(small)
    assert len(graphs) == 3
    assert pools[-1] is None
