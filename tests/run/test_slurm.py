"""The template for Slurm: the signal before the time limit saves the run, the job is put into the queue
again, and its next start resumes. Stand-ins for Slurm's commands do what its documentation says."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.test_tutorials import commands_beside_this_python
from tests.processes import descendants
from tests.run.roles_by_hand import until
from tests.run.tiny_recipe import record_count
from whetstone.trainer.checkpoint import checkpoint_error

TEMPLATE = Path(__file__).parents[2] / "examples" / "slurm" / "train.sbatch"
BASH = shutil.which("bash")
# `sbatch` starts the script with the variables of the job; `srun` starts its tasks and returns their largest
# status; `scontrol` notes what it was asked for.
SBATCH = """\
grep -q '^#SBATCH --signal=USR1@[0-9]' "$1" && grep -q '^#SBATCH --requeue$' "$1" || exit 9
export SLURM_JOB_ID=7 SLURM_NTASKS=$TASKS SLURM_NTASKS_PER_NODE=$TASKS SLURM_JOB_NODELIST=node
exec bash "$@"
"""
SRUN = """\
number=0 tasks= largest=0
while [ "$number" -lt "$SLURM_NTASKS" ]; do
    SLURM_PROCID=$number SLURM_LOCALID=$number "$@" &
    tasks="$tasks $!" number=$((number + 1))
done
for task in $tasks; do
    wait "$task"
    status=$?
    [ "$status" -gt "$largest" ] && largest=$status
done
exit "$largest"
"""
SCONTROL = """\
case "$*" in
"show hostnames node") echo 127.0.0.1 ;;
*) echo "$*" >> "$ASKED" ;;
esac
"""


class Job:
    """One start of the job, to be left by ``with``."""

    def __init__(self, folder: Path, recipe: Path, out: Path, tasks: int) -> None:
        self.asked = folder / "asked"
        commands = folder / "commands"
        if not commands.exists():
            commands_beside_this_python(commands)
            for name, text in {"sbatch": SBATCH, "srun": SRUN, "scontrol": SCONTROL}.items():
                (commands / name).write_text(f"#!/bin/bash\n{text}")
                (commands / name).chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "TASKS": str(tasks),
            "ASKED": str(self.asked),
            "OMP_NUM_THREADS": "1",
        }
        command = ["sbatch", str(TEMPLATE), str(recipe), f"out={out}", "trainer.checkpoint_every=50"]
        short = ["evaluation.n=1", "evaluation.k=[1]", "evaluation.every=100"]
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *short], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *error: object) -> None:
        for each in [*descendants(self._process.pid), self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def printed(self) -> str:
        """What all starts have printed."""
        return self.log.read_text(encoding="utf-8")

    def signal_tasks(self) -> None:
        """Send SIGUSR1 to every process of the tasks, as Slurm does; neither to the script nor to srun."""
        for each in descendants(self._process.pid):
            # The judge ends processes of its own at any time.
            with suppress(ProcessLookupError, FileNotFoundError):
                if not re.match(rb"(\S*/)?bash\0", Path(f"/proc/{each}/cmdline").read_bytes()):
                    os.kill(each, signal.SIGUSR1)

    def wait(self) -> int:
        """Return the exit status of the script."""
        return self._process.wait(timeout=600)


@pytest.mark.process
@pytest.mark.extended
@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_job_is_saved_before_its_limit_and_continues_in_the_next_allocation(
    tasks: int, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with Job(tmp_path, recipe, out, tasks) as job:
        until(lambda: record_count(out) >= 2 or not job.running, "2 records")
        job.signal_tasks()
        assert job.wait() == 130, job.printed()
        assert job.asked.read_text() == "requeue 7\n"
    records = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    step = max(json.loads(line)["step"] for line in records)
    assert 1 <= step < 5
    assert checkpoint_error(out / "checkpoints" / f"step-{step}") is None
    with Job(tmp_path, recipe, out, tasks) as again:
        assert again.wait() == 0, again.printed()
        assert f"from step {step}" in again.printed()
        assert "later records are repeated" not in again.printed()
        assert again.asked.read_text() == "requeue 7\n"
    assert max(json.loads(line)["step"] for line in (out / "metrics.jsonl").open(encoding="utf-8")) == 5


@pytest.mark.process
@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_a_run_that_fails_is_not_put_into_the_queue_again(tmp_path: Path) -> None:
    with Job(tmp_path, tmp_path / "missing.yaml", tmp_path / "run", 1) as job:
        assert job.wait() == 2
        assert not job.asked.exists()
