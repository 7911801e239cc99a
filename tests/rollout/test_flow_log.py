"""The log of a flow: whole records or none, bounded, and a full disk that is no end."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rollout.doubles import facts_at
from whetstone.core.errors import UserError
from whetstone.rollout.audit import Audit
from whetstone.rollout.file_log import FileLog
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.scheduler import Delivery, FlowScheduler
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import new_state

RULES = FlowRules(prompts_per_step=4, staleness=1, refill_rounds=20)


def opened(folder: Path, run: str = "run", file_bytes: int = 1 << 20) -> tuple[FlowScheduler, FileLog]:
    log = FileLog(folder, run, file_bytes=file_bytes)
    if log.state is None:
        log.begin(new_state(RULES.models))
    return FlowScheduler(RULES, PromptSource(["p"], 0), log, 0.0, log.state), log


def work(scheduler: FlowScheduler, steps: int, size: int) -> None:
    """Sample and train ``steps`` batches with one replica, whose groups have ``size`` bytes."""
    for version in range(
        scheduler.state.models["policy"].next_batch, scheduler.state.models["policy"].next_batch + steps
    ):
        scheduler.resume("policy", version, 0, [])
        taken = scheduler.take("r", holding=[], room=8, versions={"policy": version}, now=0.0)
        for grant in taken.leases:
            facts = facts_at("p", "s", "", [0.0, 1.0], [1, 2], version)
            scheduler.deliver("r", Delivery(grant.serial, grant.draw, {"policy": (facts, bytes(size))}), 0.0)
        assert scheduler.next_batch("policy", version) is not None
        scheduler.checkpoint_saved("policy", version + 1)


def test_a_record_that_a_kill_has_torn_never_counted(tmp_path: Path) -> None:
    scheduler, log = opened(tmp_path)
    work(scheduler, 2, 100)
    scheduler.next_batch("policy", 2)
    before = copy.deepcopy(scheduler.state)
    end = (tmp_path / "log-00000001").stat().st_size
    taken = scheduler.take("r", holding=[], room=9, versions={"policy": 2}, now=0.0)
    assert taken.leases
    log.close()
    whole = (tmp_path / "log-00000001").stat().st_size
    for cut in range(whole - 1, end - 1, -7):
        os.truncate(tmp_path / "log-00000001", cut)
        again, log = opened(tmp_path)
        assert again.state.models == before.models
        assert again.state.drawn in (before.drawn, before.drawn + len(taken.leases))
        log.close()


def test_the_log_stays_small_and_says_all(tmp_path: Path) -> None:
    scheduler, log = opened(tmp_path, file_bytes=20_000)
    sizes: list[int] = []
    for _ in range(30):
        work(scheduler, 3, 2000)
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
    assert max(sizes) < 4 * 20_000 + 30 * 2000  # what was written in all is 700 KB
    log.close()
    again, log = opened(tmp_path, file_bytes=20_000)
    assert again.state == scheduler.state
    work(again, 1, 2000)
    log.close()


def test_a_log_of_another_run_or_in_use_or_damaged_is_refused(tmp_path: Path) -> None:
    scheduler, log = opened(tmp_path)
    with pytest.raises(UserError, match="another flow uses it"):
        opened(tmp_path)
    work(scheduler, 1, 10)
    log.close()
    with pytest.raises(UserError, match="another run"):
        opened(tmp_path, "other")
    (tmp_path / "log-00000001").write_bytes(b"WSFLOW1\nnothing of the kind")
    with pytest.raises(UserError, match="not a flow log of this version"):
        opened(tmp_path)


def test_a_log_in_which_nothing_has_happened_binds_nobody(tmp_path: Path) -> None:
    _, log = opened(tmp_path)
    log.close()
    scheduler, log = opened(tmp_path, "other")
    work(scheduler, 1, 10)
    log.close()
    again, log = opened(tmp_path, "other")
    log.close()
    assert again.state == scheduler.state


FULL = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.rollout.test_flow_log import opened, work
scheduler, log = opened(Path(sys.argv[1]))
work(scheduler, 1, 100)
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = (Path(sys.argv[1]) / "log-00000001").stat().st_size
soft = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5000, soft[1]))
from tests.rollout.doubles import facts_at
from whetstone.cli.main import main
from whetstone.core.errors import UserError
try:
    work(scheduler, 50, 3000)
except UserError as error:
    assert "free some space" in str(error), error
else:
    raise SystemExit("the disk was not full")
finished = scheduler.state.counts["finished"]
resource.setrlimit(resource.RLIMIT_FSIZE, soft)
held = sorted(scheduler.state.leases)
from whetstone.rollout.scheduler import Delivery
version = scheduler.state.models["policy"].next_batch
for serial in held:
    facts = facts_at("p", "s", "", [0.0, 1.0], [1, 2], version)
    draw = scheduler.state.leases[serial].draw
    assert scheduler.deliver("r", Delivery(serial, draw, {"policy": (facts, bytes(3000))}), 0.0) == "taken"
assert scheduler.next_batch("policy", version)
log.close()
again, _ = opened(Path(sys.argv[1]))
assert again.state == scheduler.state
"""


@pytest.mark.process
def test_a_full_disk_loses_nothing_and_the_flow_goes_on_once_there_is_room(tmp_path: Path) -> None:
    script = [sys.executable, "-c", FULL, str(tmp_path), str(Path(__file__).parents[2])]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_audit_shows_which_drop_reason_shifts_the_trained_groups() -> None:
    audit = Audit()
    for _ in range(30):
        audit.add(facts_at("p", "easy", "1", [1.0, 0.0], [10, 10], 0), "")
    for _ in range(10):
        audit.add(facts_at("q", "hard", "5", [0.0, 1.0], [1000, 1000], 0), "stale")
    for _ in range(10):
        audit.add(facts_at("p", "easy", "1", [1.0, 1.0], [10, 10], 0), "zero_variance")
    said = audit.figures()
    assert said["audit/sampled/length"] == pytest.approx((40 * 10 + 10 * 1000) / 50)
    assert said["audit/trained/length"] == 10
    assert said["audit/length_shift"] == pytest.approx(0.2)
    assert said["audit/source_shift"] == pytest.approx(0.2)
    assert said["audit/dropped/stale/length_bias"] == pytest.approx(10 - 208)
    assert said["audit/dropped/stale/reward_bias"] == pytest.approx(50 / 80 - 60 / 100)
    assert said["audit/dropped/zero_variance/reward_bias"] == pytest.approx(0.5 - 60 / 100)
    assert Audit().figures() == {}
