"""Hashes of text are the same in every run and place, or as asked for, or known to nobody."""

import json
import subprocess
import sys

import pytest

from tests.beside import data_beside
from whetstone.core.problem import Program
from whetstone.judge import Judge
from whetstone.sandbox import Profile, RunLimits, Sandbox, SandboxJob, Tier

DATA = data_beside(__file__)

pytestmark = pytest.mark.isolation

LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20)
ORDER = "import json, os; print(json.dumps([list({'a', 'b', 'c', 'd', 'e', 'f'}), sorted(os.environ)]))"
ECHO = DATA["echo"]
PRINT_SET = Program("python", "print(*set(input().split()))")


def order(tier: Tier, seed: int | None) -> list[str]:
    with Sandbox({}, profile=Profile(hash_seed=seed), tier=tier) as box:
        result = box.run(SandboxJob("script", ORDER.encode(), LIMITS))
    assert result.exit_code == 0, result.stderr
    found, variables = json.loads(result.stdout)
    assert variables == ["HOME", "LANG", "PATH", "TMPDIR"]
    return found


def test_a_seed_fixes_the_order_of_a_set_in_every_fork_server(tier: Tier) -> None:
    assert order(tier, 7) == order(tier, 7)


def test_hashes_by_address_are_the_same_in_every_fork_server(tier: Tier) -> None:
    def hashes() -> bytes:
        with Sandbox({}, profile=Profile(hash_seed=0), tier=tier) as box:
            return box.run(
                SandboxJob("script", b"print(hash(None), hash(print), {None, 'a', 1, len})", LIMITS)
            ).stdout

    asked = "import ctypes; assert ctypes.CDLL(None).personality(0x0040000) >= 0"
    if subprocess.run([sys.executable, "-c", asked], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("this machine lets no process choose its addresses")
    assert hashes() == hashes()


def test_another_seed_and_none_give_other_orders(tier: Tier) -> None:
    assert len({tuple(order(tier, seed)) for seed in (0, 1, 2, None, None)}) > 3


def test_a_judge_gives_a_set_one_order_unless_another_seed_is_wished_for(tier: Tier) -> None:
    def reasons(seeds: list[int]) -> list[str]:
        with Judge(workers=1, tier=tier.label) as judge:
            return [judge.judge(ECHO, PRINT_SET, hash_seed=seed).reason for seed in seeds]

    first, *others = reasons([0, 1, 2, 3, 0])
    assert first == others[-1] == reasons([0])[0]
    assert len({first, *others}) > 1


def test_who_judges_has_hashes_that_no_program_knows(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    differ = {
        "id": "demo/hash",
        "statement": "",
        "tests": {"kind": "assert", "asserts": ["assert differs(hash('whetstone'))"]},
    }
    with Judge(workers=1, tier=tier.label) as judge:
        [pid] = judge.worker_pids()
        with open(f"/proc/{pid}/environ", "rb") as file:
            assert b"PYTHONHASHSEED=random" in file.read().split(b"\0")
        program = Program("python", "def differs(theirs):\n    return theirs != hash('whetstone')\n")
        assert judge.judge(differ, program).accepted
