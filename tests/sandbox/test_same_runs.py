"""A run finds what every other run of the same program finds: numbers, counters, and its directory."""

import json

import pytest

from tests.beside import data_beside
from whetstone.sandbox import RunLimits, Sandbox, SandboxJob, Tier

DATA = data_beside(__file__)

pytestmark = [pytest.mark.process, pytest.mark.isolation]

LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20)
NUMBERS, COUNTERS = DATA["numbers"], DATA["counters"]


@pytest.fixture(scope="module")
def box(tier: Tier):
    with Sandbox({}, tier=tier) as box:
        yield box


def said(box: Sandbox, source: str) -> bytes:
    result = box.run(SandboxJob("script", source.encode(), LIMITS))
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_every_run_has_the_same_ids_of_processes_threads_and_files(box: Sandbox) -> None:
    if box.tier is Tier.RESTRICTED:
        pytest.skip("its processes and files are numbered among the machine's")
    first = said(box, NUMBERS)
    said(box, "print(1)")
    said(box, "import os\nfor _ in range(5):\n    if os.fork() == 0: os._exit(0)")
    assert [said(box, NUMBERS) for _ in range(3)] == [first] * 3


def test_the_fork_server_counts_nothing_where_its_runs_look(box: Sandbox) -> None:
    first = said(box, COUNTERS)
    assert b"harness" in first
    assert [said(box, COUNTERS) for _ in range(6)] == [first] * 6


TRACES: dict[str, str] = DATA["traces"]


def look(box: Sandbox) -> dict[str, object]:
    return json.loads(said(box, DATA["look"]))


@pytest.mark.parametrize("trace", TRACES)
def test_the_next_run_sees_no_trace(box: Sandbox, trace: str) -> None:
    if box.tier is Tier.RESTRICTED:
        pytest.skip("its directory is the host's: emptied, with a host's numbers (see test_scratch_dir)")
    before = look(box)
    assert before == {**before, "names": ["main.py"], "mode": "0o40700", "odd_times": []}
    box.run(SandboxJob("script", TRACES[trace].encode(), LIMITS))
    assert look(box) == before
