"""Programs of several processes: counted, limited and ended as one, wherever they can be accounted for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.beside import data_beside
from tests.processes import descendants
from whetstone.sandbox import EndReason, RunResult, Tier

DATA = data_beside(__file__)

pytestmark = pytest.mark.isolation

Runner = Callable[..., RunResult]
CPU_S = 0.3
# Each child spins; the first process waits for what never comes.
SPINNERS = DATA["spinners"]


@pytest.fixture(autouse=True)
def whole_tree(tier: Tier) -> None:
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there (test_containment)")


@pytest.fixture(autouse=True)
def nothing_is_left(whole_tree: None, run: Runner) -> Iterator[None]:
    """The processes of the fork-server are the same after a test as before it."""
    run("pass")
    before = descendants(os.getpid())
    yield
    assert run("print(1)").stdout == b"1\n"
    assert descendants(os.getpid()) == before


@pytest.mark.parametrize(
    ("before", "child"),
    DATA["spinning"],
    ids=["children", "setsid", "daemons", "sigchld ignored", "signals blocked"],
)
def test_cpu_time_of_all_processes_counts_together(run: Runner, before: str, child: str) -> None:
    result = run(SPINNERS.format(count=10, before=before, child=child), cpu_s=CPU_S, wall_s=60)
    assert result.ended is EndReason.CPU_LIMIT
    assert CPU_S <= result.cpu_s < 2 * CPU_S


def test_cpu_time_of_processes_that_have_ended_counts(run: Runner) -> None:
    source = DATA["ended_children"]
    result = run(source, cpu_s=CPU_S, wall_s=60)
    assert result.ended is EndReason.CPU_LIMIT


@pytest.mark.parametrize("child", ["", "os.setsid()"])
def test_a_fork_bomb_ends_at_the_limit_on_processes(run: Runner, child: str) -> None:
    forked = f"        if os.fork() == 0: {child or 'pass'}\n"
    source = f"import os\nwhile True:\n    try:\n{forked}    except OSError: pass"
    result = run(source, cpu_s=30.0, memory_mb=2000)
    assert result.ended is EndReason.PROCESS_LIMIT


def test_processes_that_only_sleep_are_counted(run: Runner) -> None:
    source = DATA["sleeping"]
    assert run(source, wall_s=60, memory_mb=2000).ended is EndReason.PROCESS_LIMIT


def test_memory_of_all_processes_counts_together(run: Runner) -> None:
    source = DATA["filling"]
    assert run(source, memory_mb=200, wall_s=60).ended is EndReason.MEMORY_LIMIT
    assert run(source.replace("100", "0.5").replace("60 << 20", "6 << 20"), memory_mb=200).exit_code == 0


def test_memory_that_processes_share_counts_once(run: Runner) -> None:
    source = DATA["sharing"]
    result = run(source, memory_mb=200)
    assert (result.ended, result.stdout) == (EndReason.EXITED, b"shared\n")


@pytest.mark.parametrize(
    "each",
    [
        "for _ in range(60): start(0)",
        "from concurrent.futures import ThreadPoolExecutor as Pool\nlist(Pool(4).map(start, range(60)))",
    ],
    ids=["one by one", "from threads"],
)
def test_a_child_has_the_memory_of_its_parent_until_it_executes(run: Runner, each: str) -> None:
    """``subprocess`` forks by ``vfork``: two processes with one memory, which counts once."""
    kept = "import subprocess\nkept = bytearray(b'x') * (150 << 20)\n"
    start = "def start(_): subprocess.run(['/bin/cat', '/dev/null'], check=True)\n"
    result = run(kept + start + each, cpu_s=30.0, memory_mb=200)
    assert result.ended is EndReason.EXITED
    assert result.exit_code == 0


@pytest.mark.parametrize("where", ["main()", "if os.fork() == 0: main()\nos.wait()"], ids=["first", "child"])
def test_memory_counts_when_the_first_thread_has_ended(run: Runner, where: str) -> None:
    """Then the kernel tells of a process's memory under its other threads alone."""
    source = (
        "import ctypes, os, threading, time\n"
        "def grow():\n"
        "    kept = []\n"
        "    while True: kept.append(bytearray(b'x') * (4 << 20)); time.sleep(0.002)\n"
        "def main():\n"
        "    threading.Thread(target=grow).start()\n"
        f"    ctypes.CDLL(None).syscall({60 if os.uname().machine == 'x86_64' else 93}, 0)\n"
    )
    result = run(source + where, cpu_s=30.0, memory_mb=200)
    assert result.ended is EndReason.MEMORY_LIMIT
    assert result.peak_bytes < 400 << 20


@pytest.mark.parametrize("child", ["pass", "os.setsid()", "if os.fork(): os._exit(0)"])
def test_remaining_processes_end_with_the_first_one(run: Runner, child: str) -> None:
    """Also a daemon, and an orphan that keeps the standard output open: nobody waits for it."""
    source = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        f"    {child}\n"
        "    time.sleep(100)\n"
        "    open('/tmp/late', 'w')\n"
        "print('done')"
    )
    result = run(source, wall_s=60)
    assert (result.ended, result.exit_code, result.stdout) == (EndReason.EXITED, 0, b"done\n")
    assert run("import os; print(os.listdir('/tmp'))").stdout == b"['main.py']\n"


def test_children_may_answer_for_their_parent(run: Runner) -> None:
    source = "import os\nif os.fork() == 0:\n    print('child')\nelse:\n    os.wait()\n    print('parent')"
    assert run(source).stdout == b"child\nparent\n"


def test_a_pool_of_processes_computes(run: Runner) -> None:
    source = (
        "import multiprocessing\n"
        "def square(x): return x * x\n"
        "if __name__ == '__main__':\n"
        "    pool = multiprocessing.get_context('fork').Pool(3)\n"
        "    with pool: print(sum(pool.map(square, range(1000))))"
    )
    result = run(source)
    assert (result.exit_code, result.stdout) == (0, b"332833500\n"), result.stderr


def test_a_child_that_fills_the_tmp_meets_an_error_and_leaves_it_empty(run: Runner) -> None:
    source = DATA["filling_tmp"]
    assert run(source).stdout == b"No space left on device\n"
    assert run("import os; print(os.listdir('/tmp'))").stdout == b"['main.py']\n"


def test_output_of_all_processes_counts_together(run: Runner) -> None:
    source = "import os\nos.fork()\nos.fork()\nos.write(1, b'x' * 30000)\nwhile True: pass"
    assert run(source, output_bytes=100_000).ended is EndReason.OUTPUT_LIMIT
