"""What honest programs use, tried on every tier; ``docs/judging.md`` holds the table of it, made here.

``WHETSTONE_WRITE_DOCS=1 pytest tests/sandbox/test_tier_differences.py`` writes the table.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox import Profile, RunLimits, Sandbox, SandboxJob, Tier

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "judging.md"
BEGIN, END = "<!-- made by tests/sandbox/test_tier_differences.py -->\n", "<!-- end -->\n"
LIMITS = RunLimits(cpu_s=20.0, memory_bytes=512 << 20, output_bytes=1 << 20)
INPUT = b"one\ntwo\n"

_START = """
import multiprocessing as mp
def work(queue): queue.put(6 * 7)
if __name__ == "__main__":
    mp.set_start_method(%r)
    queue = mp.Queue()
    process = mp.Process(target=work, args=(queue,))
    process.start()
    assert queue.get() == 42
    process.join()
"""
# What a program does, and a program that fails where it cannot.
FEATURES = {
    "threads, locks, `ThreadPoolExecutor`": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool: assert list(pool.map(abs, [-1, 2])) == [1, 2]
""",
    "`os.fork`, `os.wait`": """
import os
if os.fork() == 0: os._exit(7)
assert os.WEXITSTATUS(os.wait()[1]) == 7
""",
    "`multiprocessing` by fork: `Process`, `Pool`, `Queue`": _START % "fork"
    + "    with mp.Pool(2) as pool: assert pool.map(abs, [-1, 2]) == [1, 2]\n",
    "`multiprocessing` by spawn": _START % "spawn",
    "`multiprocessing` by forkserver": _START % "forkserver",
    "`multiprocessing.Manager`": """
import multiprocessing as mp
if __name__ == "__main__":
    with mp.Manager() as manager:
        held = manager.dict(a=1)
        assert dict(held) == {"a": 1}
""",
    "`multiprocessing.shared_memory`": """
from multiprocessing.shared_memory import SharedMemory
first = SharedMemory(create=True, size=64)
second = SharedMemory(name=first.name)
first.buf[3] = 9
assert second.buf[3] == 9
second.close(); first.close(); first.unlink()
""",
    "`subprocess` of the interpreter": """
import subprocess, sys
assert subprocess.run([sys.executable, "-c", "print(42)"], capture_output=True).stdout == b"42\\n"
assert subprocess.run(["python3", "-c", "print(42)"], capture_output=True).stdout == b"42\\n"
""",
    "`subprocess` of the system's tools, `os.system`": """
import os, subprocess
assert subprocess.run("printf 'b\\na\\n' | sort | cat", shell=True, capture_output=True).stdout == b"a\\nb\\n"
assert os.system("true") == 0
""",
    "`/dev/stdin`, `/dev/stdout`, `/dev/fd/N`, `/proc/self/fd/N`": """
for name in ("/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"): assert open(name).read() == "one\\ntwo\\n"
open("/dev/stdout", "w").write(""); open("/proc/self/fd/1", "w").write(""); open("/dev/stderr", "w").write("")
""",
    "a file `x` in the working directory, `tempfile`": """
import os, tempfile
open("x", "w").write("1")
with tempfile.TemporaryFile() as file, tempfile.NamedTemporaryFile() as named:
    file.write(b"1"); named.write(b"1")
with tempfile.TemporaryDirectory() as folder: open(os.path.join(folder, "y"), "w").write("1")
""",
    "`os.chmod`, `os.utime`, `os.truncate` of its own file by name": """
import os
os.chmod("main.py", 0o600); os.utime("main.py", (1, 1)); os.truncate("main.py", 1)
""",
    "a file `/tmp/x`": "open('/tmp/x', 'w').write('1'); assert open('/tmp/x').read() == '1'",
    "`asyncio`: streams, `connect_read_pipe(sys.stdin)`": """
import asyncio, sys
async def main():
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    assert await reader.read() == b"one\\ntwo\\n"
asyncio.run(main())
""",
    "`asyncio.create_subprocess_exec`": """
import asyncio, sys
async def main():
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(1)", stdout=pipe)
    assert (await process.communicate())[0] == b"1\\n"
asyncio.run(main())
""",
    "pairs of sockets": """
import socket
left, right = socket.socketpair()
left.sendall(b"1"); assert right.recv(1) == b"1"
""",
    "unix sockets between own processes and threads": """
import socket, threading
with socket.socket(socket.AF_UNIX) as server:
    server.bind("here"); server.listen()
    threading.Thread(target=lambda: server.accept()[0].sendall(b"1")).start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("here"); assert client.recv(1) == b"1"
""",
    "network sockets": "import socket; socket.create_server(('127.0.0.1', 0))",
    "files of `/proc` (`/proc/self/status`, `/proc/cpuinfo`)": "open('/proc/self/status').read()",
    "the same process id in every run": "import os; assert os.getpid() == 2",
    "no process but its own": "import os; assert not os.path.exists(f'/proc/{os.getppid()}')",
    "`signal`: handlers, `alarm`, `setitimer`, to itself": """
import os, signal, time
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1)); os.kill(os.getpid(), signal.SIGUSR1)
signal.signal(signal.SIGALRM, lambda *_: seen.append(2)); signal.setitimer(signal.ITIMER_REAL, 0.001)
while len(seen) < 2: time.sleep(0.001)
assert seen == [1, 2]
""",
    "`os.nice`, `getpriority`": "import os; os.nice(1); assert os.getpriority(os.PRIO_PROCESS, 0) == 0",
    "`os.sched_setaffinity`": "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
    "`resource`: reading and lowering limits": """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 64), hard))
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
""",
    "a recursion 100,000 deep, in a thread as well": """
import sys, threading
sys.setrecursionlimit(10**6)
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
assert deep(100000) == 100000
threading.stack_size(256 << 20)
thread = threading.Thread(target=lambda: deep(100000)); thread.start(); thread.join()
""",
    "`mmap` of standard input": "import mmap; assert mmap.mmap(0, 0, access=mmap.ACCESS_READ)[:3] == b'one'",
    "time zones, `locale` C.UTF-8": """
import datetime, locale, zoneinfo
assert locale.setlocale(locale.LC_ALL, "C.UTF-8") and str(datetime.datetime.now().astimezone())
""",
    "`ctypes` of the C library": "import ctypes; assert ctypes.CDLL(None).abs(-3) == 3",
    "`os.urandom`, `secrets`, `uuid`, `hashlib`": """
import hashlib, os, secrets, uuid
assert os.urandom(1) and secrets.token_hex() and uuid.uuid4() and hashlib.sha256().hexdigest()
""",
    "`sqlite3` in a file": "import sqlite3; sqlite3.connect('db').execute('create table t (x)')",
}


def works(box: Sandbox, source: str) -> bool:
    """Whether a program that uses a feature ends well."""
    result = box.run(SandboxJob("script", source.encode(), LIMITS, stdin=INPUT))
    return result.exit_code == 0


def tried(tier: Tier) -> dict[str, bool]:
    """What works on a tier. Raises SandboxUnavailable."""
    with Sandbox({}, profile=Profile(hash_seed=0), tier=tier) as box:
        return {name: works(box, source) for name, source in FEATURES.items()}


def in_words(found: dict[Tier, dict[str, bool]]) -> str:
    """The table: what some tier refuses, and in a line below it, what none does."""
    tiers = sorted(found, reverse=True)
    labels = [tier.label for tier in tiers]
    lines = [f"| a Python program uses | {' | '.join(labels)} |", f"| --- |{' --- |' * len(tiers)}"]
    everywhere: list[str] = []
    for name in FEATURES:
        cells = [found[tier][name] for tier in tiers]
        if all(cells):
            everywhere.append(name)
        else:
            lines.append(f"| {name} | {' | '.join('yes' if cell else 'no' for cell in cells)} |")
    below = textwrap.fill(f"On every tier: {'; '.join(everywhere)}.", 118, break_on_hyphens=False)
    return "\n".join(lines) + f"\n\n{below}\n"


@pytest.fixture(scope="module")
def found() -> dict[Tier, dict[str, bool]]:
    found: dict[Tier, dict[str, bool]] = {}
    for tier in Tier:
        try:
            found[tier] = tried(tier)
        except SandboxUnavailable:
            continue
    if set(found) != set(Tier):
        pytest.skip(f"this machine offers only {[tier.label for tier in found]}")
    return found


def test_the_table_of_differences_between_tiers_is_true(found: dict[Tier, dict[str, bool]]) -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    written, after = rest.split(END)
    table = in_words(found)
    if os.environ.get("WHETSTONE_WRITE_DOCS"):
        PAGE.write_text(before + BEGIN + table + END + after, encoding="utf-8")
    else:
        assert written == table, f"docs/judging.md should have:\n\n{table}"


def test_each_difference_between_tiers_is_stable(found: dict[Tier, dict[str, bool]]) -> None:
    """A feature that works now and then would be worse than one that is refused."""
    shared = FEATURES["`multiprocessing.shared_memory`"]
    for tier, works_there in found.items():
        with Sandbox({}, profile=Profile(hash_seed=0), tier=tier) as box:
            results = {works(box, shared) for _ in range(20)}
        assert results == {works_there["`multiprocessing.shared_memory`"]}
