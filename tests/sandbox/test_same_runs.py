"""Nothing that can be helped tells a program which run of its fork-server it is."""

import pytest

from whetstone.sandbox import RunLimits, Sandbox, SandboxJob, Tier

pytestmark = [pytest.mark.process, pytest.mark.isolation]

LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20)
NUMBERS = """
import os, threading
first, second = [], os.fork()
if second == 0:
    os._exit(0)
thread = threading.Thread(target=lambda: first.append(threading.get_native_id()))
thread.start(); thread.join()
file = open('made', 'w')
made = os.fstat(file.fileno())
print(os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0), first, second)
print(os.stat('.').st_ino, os.stat('main.py').st_ino, made.st_ino)
"""
COUNTERS = """
import gc, sys, types
frame, found = sys._getframe(1), []
while frame is not None:
    found += [(name, value) for name, value in frame.f_locals.items() if isinstance(value, int)]
    for name, value in frame.f_globals.items():
        inner = vars(value).items() if isinstance(value, types.ModuleType) else ()
        for name, value in [(name, value), *inner]:
            if "zygote" in str(getattr(value, "__module__", "")) and hasattr(value, "cache_info"):
                found.append((name, value.cache_info()))
    frame = frame.f_back
# A number that is drawn for each run is large, one that counts them is small.
small = [(name, value) for name, value in found if not isinstance(value, int) or value < 1 << 12]
print(small, gc.get_stats())
"""


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
