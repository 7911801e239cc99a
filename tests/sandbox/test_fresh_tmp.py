"""A run finds /tmp as if nobody had been there, though most runs share one mount."""

import json

import pytest

from tests.beside import data_beside
from whetstone.sandbox import RunLimits, Sandbox, SandboxJob, Tier

pytestmark = [pytest.mark.process, pytest.mark.isolation]

LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20)
LOOK = """
import json, os, time
def times(state): return state.st_atime, state.st_mtime, state.st_ctime
state, space = os.stat('.'), os.statvfs('.')
print(json.dumps({
    'names': os.listdir('.'),
    'mode': oct(state.st_mode),
    'links': state.st_nlink,
    'odd_times': [t for t in (*times(state), *times(os.stat('main.py'))) if abs(t - time.time()) > 60],
    'own': oct(os.stat('main.py').st_mode),
    'used': [space.f_blocks - space.f_bfree, space.f_files - space.f_ffree],
    'inode': os.stat('main.py').st_ino - state.st_ino,
}))
"""
DATA = data_beside(__file__)
TRACES: dict[str, str] = DATA["traces"]


@pytest.fixture(scope="module")
def box(tier: Tier):
    if tier is Tier.RESTRICTED:
        pytest.skip("its directory is the host's: emptied, with a host's numbers (see test_scratch)")
    with Sandbox({}, tier=tier) as box:
        yield box


def look(box: Sandbox) -> dict[str, object]:
    result = box.run(SandboxJob("script", LOOK.encode(), LIMITS))
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("trace", TRACES)
def test_the_next_run_sees_no_trace(box: Sandbox, trace: str) -> None:
    before = look(box)
    assert before == {**before, "names": ["main.py"], "mode": "0o40700", "odd_times": []}
    box.run(SandboxJob("script", TRACES[trace].encode(), LIMITS))
    assert look(box) == before
