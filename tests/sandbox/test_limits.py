"""Each limit ends a run for its own reason, and nothing else does."""

import pytest

from tests.beside import data_beside
from whetstone.sandbox import EndReason, RunLimits, Sandbox, SandboxJob, Tier

DATA = data_beside(__file__)

pytestmark = pytest.mark.isolation

SPIN = "while True: pass"


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    "source",
    [
        SPIN,
        "import os\nfor fd in (0, 1, 2): os.close(fd)\n" + SPIN,
        "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\n" + SPIN,
        "import signal\nsignal.pthread_sigmask(0, range(1, 65))\n" + SPIN,
        "try:\n    while True: pass\nexcept BaseException: pass\nfinally:\n    while True: pass",
        "import threading\nspin = lambda: [0 for _ in iter(int, 1)]\n"
        "for _ in range(3): threading.Thread(target=spin).start()",
        "import atexit\n@atexit.register\ndef _():\n    while True: pass",
        "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
    ],
    ids=["plain", "closed", "ignoring", "masked", "finally", "threads", "atexit", "in-c"],
)
def test_cpu_limit(run, source):
    result = run(source, cpu_s=0.3)
    assert result.ended is EndReason.CPU_LIMIT
    # The meter's reading decided. The kernel's report of the killed process may be some clock ticks less.
    assert 0.2 <= result.cpu_s < 1.5


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "source",
    DATA["waiting"],
    ids=["sleep", "closed", "stopped", "waiting", "pausing"],
)
def test_wall_limit(run, source):
    result = run(source, wall_s=0.3)
    assert result.ended is EndReason.WALL_LIMIT
    assert result.wall_s >= 0.3


@pytest.mark.parametrize("source", DATA["filling"].values(), ids=DATA["filling"])
def test_memory_limit(run, source):
    assert run(source, memory_mb=100, cpu_s=20).ended is EndReason.MEMORY_LIMIT


def test_only_resident_memory_counts(run):
    reserve = DATA["reserve"]
    result = run(reserve, memory_mb=100)
    assert (result.ended, result.stdout) == (EndReason.EXITED, b"ok\n"), result.stderr
    assert 5 << 20 < result.peak_bytes < 100 << 20


def test_peak_memory_is_seen_after_it_is_freed(run):
    result = run("x = bytearray(b'x') * (200 << 20)\ndel x", memory_mb=1000)
    assert 200 << 20 < result.peak_bytes < 300 << 20


def test_a_caught_memory_error_is_the_programs_business(run):
    result = run("try: x = bytearray(1 << 44)\nexcept MemoryError: print('caught')")
    assert (result.ended, result.exit_code, result.stdout) == (EndReason.EXITED, 0, b"caught\n")


@pytest.mark.parametrize(
    "source",
    DATA["flooding"],
    ids=["stdout", "stderr", "result", "one-more-byte"],
)
def test_output_limit(run, source):
    result = run(source, output_bytes=100_000)
    assert result.ended is EndReason.OUTPUT_LIMIT
    assert max(len(result.stdout), len(result.stderr), len(result.result)) <= 100_000


def test_output_up_to_the_limit_is_kept_and_stderr_to_its_end(run):
    result = run(
        "import sys; sys.stdout.write('x' * 100_000); sys.stderr.write('y' * 99_990 + 'end')",
        output_bytes=100_000,
    )
    assert (result.ended, len(result.stdout)) == (EndReason.EXITED, 100_000)
    assert len(result.stderr) == 64 << 10
    assert result.stderr.endswith(b"yend")


def test_a_full_disk_is_an_error_of_the_program_alone(run, tier):
    fill = "open('a', 'wb').write(bytes(70 << 20))"
    result = run(fill)
    assert (result.exit_code, result.ended) == (1, EndReason.EXITED)
    many = "for i in range(200): open(f'{i}', 'wb').write(bytes(1 << 20))\nimport time; time.sleep(9)"
    result = run(many)
    expected = EndReason.OUTPUT_LIMIT if tier is Tier.RESTRICTED else EndReason.EXITED
    assert result.ended is expected
    assert run("open('a', 'wb').write(bytes(20 << 20))").exit_code == 0


def test_a_thread_bomb_ends_itself_or_is_ended(run):
    result = run(
        "import threading\nthreading.stack_size(32768)\nstop = threading.Event()\n"
        "while True: threading.Thread(target=stop.wait, daemon=True).start()",
        memory_mb=1000,
        cpu_s=20,
    )
    assert (result.ended, result.exit_code) in ((EndReason.EXITED, 1), (EndReason.PROCESS_LIMIT, None))
    assert run("print(1)").stdout == b"1\n"


def test_a_limit_below_the_interpreters_own_memory_is_a_memory_limit(sandbox: Sandbox):
    assert (
        sandbox.run(SandboxJob("script", b"pass", RunLimits(5, 1 << 20, 100))).ended is EndReason.MEMORY_LIMIT
    )
