"""Engines that are servers: what is asked and read, updates in the middle of replies, ends, and refusals.

The servers are stand-ins that check every field; ``make test-integrations`` runs vLLM itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests import served_stand_in
from tests.engine.tiny_models import byte_tokenizer, tiny_model
from tests.served_stand_in import VOCABULARY, StandIn, listening, text_of
from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest, Sleeper
from whetstone.engine.factory import build_engine, check_capabilities
from whetstone.engine.served import process
from whetstone.engine.served.engine import ServedEngine
from whetstone.engine.served.model_folders import ModelFolder, WeightFiles
from whetstone.engine.served.vllm_worker import POSITIONS
from whetstone.engine.settings import EngineSection
from whetstone.engine.weights import folder_weights

pytestmark = pytest.mark.process

TOKENIZER = byte_tokenizer()

BEFORE_A = [ord("a") - 33 - 3]
"""A prompt after which the run's weights (step 3) write ``adgj``."""


def model_of(step: int) -> Any:
    """A model that the stand-in reads as ``step``."""
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.embed_tokens.weight[0, 0] = float(step)
    return model


def weights_of(step: int) -> list[tuple[str, object]]:
    return list(model_of(step).named_parameters())


@pytest.fixture(params=["vllm", "sglang"])
def server(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    with listening(StandIn(request.param)) as stand_in:
        yield stand_in
        assert stand_in.faults == []


def attached(server: StandIn, **options: Any) -> ServedEngine:
    section = EngineSection(kind=server.kind, options={"url": server.url, **options})
    engine = build_engine(section, lambda: model_of(3), TOKENIZER)
    assert isinstance(engine, ServedEngine)
    return engine


async def replies(engine: ServedEngine, prompt: list[int], n: int = 1, **params: Any) -> list[Completion]:
    asked = GenerationRequest(prompt_ids=prompt, params=Sampling(**params), n=n, seed=7)
    return await replies_to(engine, asked)


async def replies_to(engine: ServedEngine, asked: GenerationRequest) -> list[Completion]:
    return sorted([one async for one in engine.generate(asked)], key=lambda one: one.index)


def run(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(call(), 60))


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop."""

    @functools.wraps(test)
    def wrapped(**fixtures: Any) -> None:
        run(lambda: test(**fixtures))

    return wrapped


def counted(start: int, step: int, length: int) -> list[int]:
    return [(start + step * (i + 1)) % VOCABULARY for i in range(length)]


@in_a_loop
async def test_replies_come_with_log_probs_and_versions_and_under_the_weights_of_the_run(
    server: StandIn,
) -> None:
    engine = attached(server)
    got = await replies(engine, [5, 10], n=3, max_tokens=4, temperature=0.5)
    # The server held other weights (step 1): it got the run's (step 3) before the first reply.
    assert [(c.index, c.token_ids) for c in got] == [(i, counted(10, 3, 4)) for i in range(3)]
    assert got[0].logprobs == [-0.5] * 4
    assert got[0].versions == [0] * 4
    assert got[0].finish_reason == "length"
    (stopped,) = await replies(engine, BEFORE_A, max_tokens=9, stop=("dg",))
    assert (text_of(stopped.token_ids), stopped.finish_reason) == ("adg", "stop")
    await engine.close()


@in_a_loop
async def test_an_update_falls_between_two_tokens_and_both_versions_are_marked(server: StandIn) -> None:
    engine = attached(server)
    server.hold = 2
    asked = GenerationRequest([5, 10], Sampling(max_tokens=6), n=2, seed=7)
    task = asyncio.create_task(replies_to(engine, asked))
    await asyncio.to_thread(_until_writing, server, 2)
    server.hold = None
    await engine.update_weights(weights_of(5), 1)
    # Both have tokens of the weights before, and another request would begin with the new ones.
    assert engine.oldest_version(asked) == 0
    assert engine.oldest_version(GenerationRequest([5, 10], Sampling(), n=2)) == 1
    for got in await task:
        assert got.token_ids == [13, 16, *counted(16, 5, 4)]
        assert got.versions == [0, 0, 1, 1, 1, 1]
        assert len(got.logprobs) == 6
        assert got.finish_reason == "length"
    assert engine.version == 1
    # What was cached of the two tokens is not read: they are a part of the prompt again.
    assert server.log.count("prompt 4") == 2
    await engine.close()


@in_a_loop
async def test_a_stop_string_that_an_update_cuts_in_two_is_found(server: StandIn) -> None:
    engine = attached(server)
    server.hold = 2
    task = asyncio.create_task(replies(engine, BEFORE_A, max_tokens=8, stop=("dg",)))
    await asyncio.to_thread(_until_writing, server, 1)
    server.hold = None
    await engine.update_weights(weights_of(3), 1)
    (got,) = await task
    assert (text_of(got.token_ids), got.versions, got.finish_reason) == ("adg", [0, 0, 1], "stop")
    assert len(got.logprobs) == 3
    await engine.close()


@in_a_loop
async def test_asleep_it_has_no_weights_and_the_next_ones_wake_it(server: StandIn) -> None:
    engine = attached(server)
    assert isinstance(engine, Sleeper)
    await replies(engine, [5], max_tokens=2)
    server.log.clear()
    await engine.sleep()
    await engine.sleep()
    assert server.log == ["pause", "sleep"]
    await engine.update_weights(weights_of(5), 1)
    (got,) = await replies(engine, [5], max_tokens=2)
    assert (got.token_ids, got.versions) == (counted(5, 5, 2), [1, 1])
    told = [line for line in server.log if line != "forget"]
    assert told == [
        "pause", "sleep", "wake weights", "load 5", "wake kv_cache", "resume", "prompt 1",
    ]  # fmt: skip
    await engine.close()


@in_a_loop
async def test_a_reply_wakes_it_with_the_weights_that_it_had(server: StandIn) -> None:
    engine = attached(server)
    await engine.update_weights(weights_of(5), 1)
    server.hold = 2
    early = asyncio.create_task(replies(engine, [5, 10], max_tokens=4))
    await asyncio.to_thread(_until_writing, server, 1)
    server.hold = None
    await engine.sleep()
    for got in (*await early, *await replies(engine, [5, 10], n=2, max_tokens=4)):
        assert (got.token_ids, got.versions) == (counted(10, 5, 4), [1] * 4)
    await engine.close()


@in_a_loop
async def test_a_server_that_cannot_sleep_is_named_and_not_used_again(server: StandIn) -> None:
    server.sleeps = False
    engine = attached(server)
    with pytest.raises(UserError, match=r"did not fall asleep: 400 .*memory saver"):
        await engine.sleep()
    with pytest.raises(UserError, match="did not fall asleep"):
        await replies(engine, [5], max_tokens=1)
    await engine.close()


@in_a_loop
async def test_a_server_that_took_half_of_the_weights_is_not_used_again(server: StandIn) -> None:
    engine = attached(server)
    await replies(engine, [5], max_tokens=1)
    server.refuses_weights = True
    with pytest.raises(UserError, match=r"did not take new weights: 400.*another model"):
        await engine.update_weights(weights_of(4), 1)
    with pytest.raises(UserError, match="did not take new weights"):
        engine.generate(GenerationRequest(prompt_ids=[1], params=Sampling()))
    await engine.close()


@in_a_loop
async def test_weights_that_do_not_fit_change_nothing(server: StandIn) -> None:
    engine = attached(server)
    with pytest.raises(ValueError, match="missing"):
        await engine.update_weights(weights_of(4)[1:], 1)
    (got,) = await replies(engine, [5], max_tokens=2)
    assert (got.token_ids, engine.version) == (counted(5, 3, 2), 0)
    await engine.close()


@in_a_loop
async def test_requests_beyond_the_engine_are_refused(server: StandIn) -> None:
    engine = attached(server)
    with pytest.raises(UserError, match="context of 200; lower max_tokens"):
        engine.check(GenerationRequest(prompt_ids=[1] * 150, params=Sampling(max_tokens=60)))
    with pytest.raises(UserError, match="the prompt is empty"):
        engine.check(GenerationRequest(prompt_ids=[], params=Sampling()))
    section = EngineSection(kind=server.kind)
    check_capabilities(engine, section, repeatable=False, tensors=True, ranks=2)
    with pytest.raises(UserError, match=r"does not return which tokens top-p and top-k leave"):
        check_capabilities(engine, section, repeatable=False, tensors=True, truncated=True)
    await engine.close()


def test_replies_that_are_left_and_a_closed_engine_leave_nothing_behind(
    server: StandIn, tmp_path: Path
) -> None:
    async def story() -> None:
        engine = attached(server, folder=str(tmp_path))
        server.hold = 1
        asked = GenerationRequest(prompt_ids=[1], params=Sampling(max_tokens=4), n=2)
        task = asyncio.ensure_future(anext(engine.generate(asked)))
        await asyncio.to_thread(_until_writing, server, 2)
        await engine.close()
        assert (await task).finish_reason == "abort"

    run(story)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tempered": False}, r"do not follow the temperature.*processed_logprobs"),
        ({"dev_mode": False}, r"cannot load new weights; start it as VLLM_SERVER_DEV_MODE=1"),
    ],
)
def test_a_vllm_that_would_train_nonsense_is_refused(change: dict[str, Any], said: str) -> None:
    with listening(StandIn("vllm")) as server:
        for name, value in change.items():
            setattr(server, name, value)
        with pytest.raises(UserError, match=said):
            attached(server)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"needs `engine\.options\.python`"),
        ({"python": "/no/such/python"}, "no such interpreter"),
        ({"url": "localhost:1"}, "expected an address"),
        ({"pyton": "python3"}, r"engine\.options: .*`pyton`.*`python`"),
        ({"url": "http://127.0.0.1:1", "shared": True}, "multiple values for keyword argument 'shared'"),
        ({"url": "http://127.0.0.1:1", "folder": "/no/such/folder"}, r"`engine\.options\.folder`"),
    ],
)
def test_options_that_name_no_server_say_the_way_out(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        build_engine(EngineSection(kind="vllm", options=options), lambda: tiny_model("llama"), TOKENIZER)


@pytest.fixture
def package(tmp_path: Path) -> dict[str, str]:
    """The environment of the stand-in as vLLM."""
    return served_stand_in.package(tmp_path)


def test_a_server_of_ones_own_starts_with_the_weights_and_ends_with_the_engine(
    package: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Clusters set a proxy for the internet, which does not reach this machine.
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    children: list[int] = []
    earlier = set(_children())  # such as the server of multiprocessing

    async def story() -> None:
        options = {"python": sys.executable, "environment": package, "max_context": 99}
        engine = build_engine(EngineSection(kind="vllm", options=options), lambda: model_of(4), TOKENIZER)
        assert isinstance(engine, ServedEngine)
        (got,) = await replies(engine, [5], max_tokens=3)
        assert got.token_ids == counted(5, 4, 3)
        await engine.update_weights(weights_of(6), 1)
        (got,) = await replies(engine, [5], max_tokens=3)
        assert (got.token_ids, got.versions) == (counted(5, 6, 3), [1, 1, 1])
        children.extend(set(_children()) - earlier)
        await engine.close()

    run(story)
    assert children
    assert not any(_alive(pid) for pid in children)


@pytest.mark.extended
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_server_of_ones_own_computes_in_the_dtype_of_the_run(
    dtype: torch.dtype, package: dict[str, str]
) -> None:
    """Its own choice is another one: vLLM computes in half precision where a folder says float32."""
    options: dict[str, Any] = {"python": sys.executable, "environment": package}

    async def story() -> None:
        section = EngineSection(kind="vllm", options=options)
        engine = build_engine(section, lambda: model_of(4).to(dtype), TOKENIZER)
        await engine.close()

    run(story)
    other = "bfloat16" if dtype == torch.float32 else "float32"
    options["arguments"] = ["--dtype", other]
    with pytest.raises(UserError, match=rf"computes in {other}, and the run in .*remove `--dtype` from"):
        run(story)


@pytest.mark.parametrize(("said", "refused"), [("bfloat16", True), ("float32", False), (None, False)])
def test_a_server_at_an_address_that_computes_in_another_dtype_is_refused(
    said: str | None, refused: bool, server: StandIn
) -> None:
    server.dtype = said
    if refused:
        with pytest.raises(UserError, match=r"in bfloat16, and the run in float32 \(`model\.dtype`\)"):
            attached(server)
    else:
        attached(server)


WORKERS = """
import os, signal, sys, time
kept, done, stubborn = sys.argv[1:]
leader = os.getpid()
if os.fork() == 0:  # a worker, with memory that others see
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    open(kept, "w").close()
    while os.getppid() == leader:
        time.sleep(0.01)
    time.sleep(0.5)
    if stubborn == "no":
        os.remove(kept)
        open(done, "w").close()
    else:
        time.sleep(600)
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
open(done + ".ready", "w").close()
time.sleep(600)
"""


@pytest.mark.parametrize("stubborn", ["no", "yes"])
def test_the_workers_of_a_server_remove_their_memory_before_they_are_killed(
    stubborn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's workers end after the server, and remove what they shared in ``/dev/shm`` only then."""
    if stubborn == "yes":
        monkeypatch.setattr(process, "_WORKERS_END_S", 0.2)
    kept, done = tmp_path / "shared", tmp_path / "done"
    command = [sys.executable, "-c", WORKERS, str(kept), str(done), stubborn]
    started = process.ServerProcess(command, {}, tmp_path / "log")
    _until(lambda: kept.exists() and Path(f"{done}.ready").exists())
    group = started._process.pid  # pyright: ignore[reportPrivateUsage]
    started.close()
    assert done.exists() == (stubborn == "no")
    assert kept.exists() == (stubborn == "yes")
    # A killed process stays a zombie until its new parent reads its status.
    _until(lambda: not process._group_alive(group))  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("on_a_cpu", [False, True])
def test_a_vllm_on_a_cpu_gets_no_seeds(on_a_cpu: bool, package: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    environment = {**package, "STAND_IN_LOG": str(tmp_path / "logs")}
    python = served_stand_in.interpreter(tmp_path, on_a_cpu=on_a_cpu)
    section = EngineSection(kind="vllm", options={"python": python, "environment": environment})

    async def story() -> None:
        engine = build_engine(section, lambda: model_of(4), TOKENIZER)
        assert isinstance(engine, ServedEngine)
        await replies(engine, [5], max_tokens=3)
        await engine.close()

    run(story)
    [seeds] = (file.read_text().split() for file in (tmp_path / "logs").glob("*.seeds"))
    assert (seeds == ["None"]) is on_a_cpu


@pytest.mark.parametrize("on_a_cpu", [False, True])
def test_a_server_on_the_devices_of_the_trainer_is_started_so_that_it_can_sleep(
    on_a_cpu: bool, package: dict[str, str], tmp_path: Path
) -> None:
    python = served_stand_in.interpreter(tmp_path, on_a_cpu=on_a_cpu)
    section = EngineSection(
        kind="vllm", placement="shared", options={"python": python, "environment": package}
    )

    async def story() -> None:
        engine = build_engine(section, lambda: model_of(4), TOKENIZER)
        assert isinstance(engine, ServedEngine)
        await engine.sleep()
        await engine.update_weights(weights_of(6), 1)
        (got,) = await replies(engine, [5], max_tokens=3)
        assert got.token_ids == counted(5, 6, 3)
        await engine.close()

    if on_a_cpu:
        with pytest.raises(UserError, match=r"computes on the CPU, where it cannot sleep; set it to `apart`"):
            run(story)
    else:
        run(story)


def test_a_server_that_does_not_start_says_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    options = {"python": sys.executable, "environment": {"PYTHONPATH": str(tmp_path)}}
    section = EngineSection(kind="vllm", options=options)
    with pytest.raises(
        UserError, match=r"(?s)ended with code 1.*No module named 'vllm.entrypoints'.*started as: .*python"
    ):
        build_engine(section, lambda: tiny_model("llama"), TOKENIZER)


def test_a_server_ends_with_the_process_that_started_it_however_that_ends(package: dict[str, str]) -> None:
    here = Path(__file__).parent
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from whetstone.engine.served.process import ServerProcess, free_port\n"
        "p = ServerProcess([sys.executable, '-c', 'import time; time.sleep(600)'], {}, Path(sys.argv[2]))\n"
        "print(p._process.pid, flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    log = Path(package["PYTHONPATH"]) / "log"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(here), str(log)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        # The leash is on once the command runs in place of it.
        _until(lambda: "time.sleep" in Path(f"/proc/{server}/cmdline").read_text())
        os.kill(parent.pid, signal.SIGKILL)
    _until(lambda: not _alive(server))


@in_a_loop
async def test_a_server_that_is_gone_ends_the_run_and_not_only_its_replies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("whetstone.engine.remote.request_policy.MOST_TRIES", 1)

    with listening(StandIn("vllm")) as server:
        engine = attached(server)
        await replies(engine, [5], max_tokens=1)
        server.down = True
        (lost,) = await replies(engine, [5], max_tokens=1)
        assert lost.finish_reason == "abort"
        with pytest.raises(UserError, match=r"8 requests in a row failed, the last: 503"):
            await replies(engine, [5], n=8, max_tokens=1)
        await engine.close()


def _until_writing(server: StandIn, count: int) -> None:
    """Wait until so many requests are held in the middle."""
    with server.changed:
        assert server.changed.wait_for(lambda: server.writing == count, 60)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


@pytest.fixture
def extended() -> Iterator[StandIn]:
    """A vLLM whose workers have the extension."""
    with listening(StandIn("vllm")) as stand_in:
        stand_in.extension, stand_in.dtype = "whetstone.engine.served.vllm_worker.WeightWriter", "float32"
        yield stand_in
        assert stand_in.faults == []


@in_a_loop
async def test_changed_elements_are_sent_where_the_server_has_the_others(extended: StandIn) -> None:
    engine = attached(extended)
    assert (await replies(engine, [5], max_tokens=2))[0].token_ids == counted(5, 3, 2)
    expected = ["load 3", "open"]
    for version, update in enumerate(("change 5", "sleep", "write 6", "change 7", "write 8"), 1):
        if update == "sleep":
            await engine.sleep()
            continue
        step = int(update.split()[-1])
        model = model_of(step)
        if step == 8:
            # Other elements in most places.
            with torch.no_grad():
                model.model.embed_tokens.weight[1:] += 1
        await engine.update_weights(model.named_parameters(), version)
        (got,) = await replies(engine, [5], max_tokens=2)
        assert (got.token_ids, got.versions) == (counted(5, step, 2), [version] * 2)
        expected.append(update)
    assert [
        line for line in extended.log if line.split()[0] in ("load", "open", "change", "write")
    ] == expected
    await engine.close()


@in_a_loop
async def test_a_cancelled_update_is_made_up_for_by_all_weights(
    extended: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = attached(extended)
    await replies(engine, [5], max_tokens=2)
    real, asked = ModelFolder.files, threading.Event()

    def files(self: ModelFolder) -> WeightFiles:
        asked.set()
        return real(self)

    monkeypatch.setattr(ModelFolder, "files", files)
    task = asyncio.create_task(engine.update_weights(weights_of(5), 1))
    await asyncio.to_thread(asked.wait, 60)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await engine.update_weights(weights_of(5), 2)
    assert (await replies(engine, [5], max_tokens=2))[0].token_ids == counted(5, 5, 2)
    assert "write 5" in extended.log
    await engine.close()


@in_a_loop
async def test_a_server_without_known_weights_reloads_the_folder(
    extended: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    extended.finds_weights = False
    engine = attached(extended)
    for step in (5, 6):
        await engine.update_weights(weights_of(step), step)
    assert (await replies(engine, [5], max_tokens=2))[0].token_ids == counted(5, 6, 2)
    assert "load 6" in extended.log
    assert "cannot change its weights in place, and reloads them instead: packed" in caplog.text
    await engine.close()


def test_the_supports_of_a_truncated_reply_follow_its_tokens(
    package: dict[str, str], extended: StandIn
) -> None:
    async def story() -> None:
        options = {"python": sys.executable, "environment": package}
        section = EngineSection(kind="vllm", options=options)
        engine = build_engine(section, lambda: model_of(3), TOKENIZER, truncated=True)
        assert isinstance(engine, ServedEngine)
        check_capabilities(engine, section, repeatable=False, tensors=True, truncated=True)
        samplings: list[dict[str, Any]] = [{"top_p": 0.8}, {"top_k": 5}, {"temperature": 0.0}]
        for sampling in samplings:
            (got,) = await replies(engine, [5, 10], max_tokens=4, **sampling)
            assert got.supports == [[t, t + 1] for t in counted(10, 3, 4)]
        (stopped,) = await replies(engine, BEFORE_A, max_tokens=9, stop=("dg",), top_p=0.5)
        assert (text_of(stopped.token_ids), len(stopped.supports)) == ("adg", 3)
        with pytest.raises(UserError, match=r"set their `top_p` or `top_k` too, or `evaluation\.process"):
            engine.check(GenerationRequest(prompt_ids=[1], params=Sampling(max_tokens=1)))
        await engine.close()

    run(story)
    section = EngineSection(kind="vllm", options={"url": extended.url})
    with pytest.raises(UserError, match=r"start it with `--return-sampling-mask --enable-scale-out`"):
        build_engine(section, lambda: model_of(3), TOKENIZER, truncated=True)


@in_a_loop
async def test_a_stop_string_that_an_update_cuts_in_two_cuts_the_supports_too(extended: StandIn) -> None:
    extended.supports = True

    section = EngineSection(kind="vllm", options={"url": extended.url})
    engine = build_engine(section, lambda: model_of(3), TOKENIZER, truncated=True)
    assert isinstance(engine, ServedEngine)
    extended.hold = 2
    task = asyncio.create_task(replies(engine, BEFORE_A, max_tokens=8, stop=("dg",), top_p=0.9))
    await asyncio.to_thread(_until_writing, extended, 1)
    extended.hold = None
    await engine.update_weights(weights_of(3), 1)
    (got,) = await task
    assert (text_of(got.token_ids), got.versions, got.finish_reason) == ("adg", [0, 0, 1], "stop")
    assert got.supports == [[t, t + 1] for t in got.token_ids]
    await engine.close()


def test_an_extension_of_the_users_is_refused() -> None:
    options = {"python": sys.executable, "arguments": ["--worker-extension-cls=mine.Extension"]}
    with pytest.raises(UserError, match="leave `--worker-extension-cls` out"):
        build_engine(EngineSection(kind="vllm", options=options), lambda: tiny_model("llama"), TOKENIZER)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_the_weights_of_the_model_are_those_of_the_folder(architecture: str, tmp_path: Path) -> None:
    model = tiny_model(architecture)
    folder = ModelFolder(model, TOKENIZER, str(tmp_path))
    file = folder.files().folder / "model.safetensors"
    for seed in (1, 2):
        new = tiny_model(architecture, seed=seed)
        folder.update(new.named_parameters())
        assert folder.files().changes is None
        for name, tensor in folder_weights(folder.files().folder):
            assert torch.equal(tensor, new.state_dict()[name])
            assert torch.equal(tensor, model.state_dict()[name])
    number = file.stat().st_ino
    with torch.no_grad():
        new.model.norm.weight[3] += 1
        new.model.embed_tokens.weight[1, 2] = float("nan")
    folder.update(new.named_parameters())
    changes = folder.files().changes
    assert changes is not None
    assert {name: tensor.tolist() for name, tensor in load_file(changes).items() if POSITIONS in name} == {
        f"{POSITIONS}model.norm.weight": [3],
        f"{POSITIONS}model.embed_tokens.weight": [new.config.hidden_size + 2],
    }
    assert file.stat().st_ino == number
    folder.update(new.named_parameters())
    changes = folder.files().changes
    assert changes is not None
    assert load_file(changes) == {}
    folder.close()
    assert torch.equal(model.model.norm.weight, new.model.norm.weight)
    assert list(tmp_path.iterdir()) == []
