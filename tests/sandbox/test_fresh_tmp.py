"""A run finds /tmp as if nobody had been there, though most runs share one mount."""

import json

import pytest

from whetstone.sandbox import Job, RunLimits, Sandbox, Tier

pytestmark = pytest.mark.isolation

LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20)
LOOK = """
import json, os, time
state, space = os.stat('.'), os.statvfs('.')
print(json.dumps({
    'names': os.listdir('.'),
    'mode': oct(state.st_mode),
    'links': state.st_nlink,
    'odd_times': [t for t in (state.st_atime, state.st_mtime, state.st_ctime) if abs(t - time.time()) > 60],
    'used': [space.f_blocks - space.f_bfree, space.f_files - space.f_ffree],
    'inode': os.stat('main.py').st_ino - state.st_ino,
}))
"""
TRACES = {
    "a file": "open('left', 'w').write('x')",
    "a file made and removed": "import os; open('x', 'w'); os.remove('x')",
    "a directory made and removed": "import os; os.mkdir('d'); os.rmdir('d')",
    "its own file replaced": "import os; os.remove('main.py'); open('main.py', 'w')",
    "its own file made a directory": "import os; os.remove('main.py'); os.mkdir('main.py')",
    "its own file made a link": "import os; os.remove('main.py'); os.symlink('/etc', 'main.py')",
    "its own file linked": "import os; os.link('main.py', 'other')",
    "the mode of the directory": "import os; os.chmod('.', 0)",
    "the times of the directory": "import os; os.utime('.', (4 * 10**9, 10**9))",
    "a full disk": "open('big', 'wb').write(bytes(70 << 20))",
}


@pytest.fixture(scope="module")
def box(tier: Tier):
    if tier is Tier.RESTRICTED:
        pytest.skip("its directory is the host's: emptied, with a host's numbers (see test_scratch)")
    with Sandbox({}, tier=tier) as box:
        yield box


def look(box: Sandbox) -> dict[str, object]:
    result = box.run(Job("script", LOOK.encode(), LIMITS))
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("trace", TRACES)
def test_the_next_run_sees_no_trace(box: Sandbox, trace: str) -> None:
    before = look(box)
    assert before == {**before, "names": ["main.py"], "mode": "0o40700", "odd_times": []}
    box.run(Job("script", TRACES[trace].encode(), LIMITS))
    after = look(box)
    # The numbers of inodes count runs, as process ids do, but nothing that a run did.
    steps = (0, 2, 4, 6)
    assert {**after, "inode": 0} == {**before, "inode": 0}
    assert after["inode"] in [before["inode"] + step for step in steps] or after["inode"] < before["inode"]  # type: ignore[operator]


def test_runs_without_traces_share_a_mount_and_others_do_not(box: Sandbox) -> None:
    device = b"import os; print(os.stat('.').st_dev)"
    first, second = (box.run(Job("script", device, LIMITS)).stdout for _ in range(2))
    assert first == second
    box.run(Job("script", b"open('left', 'w')", LIMITS))
    assert box.run(Job("script", device + b", os.listdir('.')", LIMITS)).stdout != first
