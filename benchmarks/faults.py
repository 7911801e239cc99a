"""What a fault costs an asynchronous run: seconds to the next step, and where every prompt is at its end.

``python benchmarks/faults.py [kills] [cut] [late] [disk]`` starts real roles of a tiny model (a step takes
less than a second), breaks them in the middle of work, and checks what is left: every step recorded once, no
prompt trained twice, none lost without being counted. ``cut`` and ``disk`` need root: network namespaces, and
a small tmpfs for the flow's log.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from fault_trial import Process, Row, Trial, until

NAMES = ("kills", "cut", "late", "disk")


def kills(trial: Trial) -> Generator[Row]:
    """``whetstone train``, of which each role is killed three times in the middle of work."""
    whole = trial.start("train", "train")
    trial.steps.reach(5)
    busy = {"flow": _samples(trial, whole), "rollout-0": _samples(trial, whole), "trainer": trial.trains}
    for role, works in busy.items():
        yield f"kill -9 of {role}", "; ".join([_killed(trial, whole, role, works) for _ in range(3)])
    whole.tell(signal.SIGINT)
    whole.wait(130)
    trial.start("train", "train", f"trainer.steps={trial.steps.last + 2}").wait(0)
    yield trial.check()


def _killed(trial: Trial, whole: Process, role: str, works: Callable[[], bool]) -> str:
    """Kill it once: seconds to the next step (until it works again, without any step; steps made again)."""
    until(works, f"{role} to work")
    before, victim = trial.steps.last, _role_of(whole.pid, role)
    os.kill(victim, signal.SIGKILL)
    moment = time.monotonic()
    next_s = trial.steps.after(moment, f"a step after {role} was killed")
    until(lambda: _role_of(whole.pid, role) not in (0, victim), f"{role} to be started again")
    until(works, f"{role} to work again")
    back_s = time.monotonic() - moment
    trial.steps.reach(3)
    gap = trial.steps.gap(moment, time.monotonic())
    again = max(0, before + 1 - min(step for when, step in trial.steps.seen if when > moment))
    return f"{next_s:.1f} ({back_s:.1f}, {gap:.1f}, {again})"


def _samples(trial: Trial, whole: Process) -> Callable[[], bool]:
    """Whether rollout-0 has prompts in hand, and is the process that was started last."""

    def works() -> bool:
        said = [line for line in whole.words().splitlines() if "rollout-0" in line]
        ended = max((n for n, line in enumerate(said) if "rollout-0 ended by" in line), default=-1)
        return any("works for" in line for line in said[ended + 1 :]) and trial.holds("rollout-0") > 0

    return works


def _role_of(parent: int, role: str) -> int:
    """The process of a role that ``parent`` has started; 0 for none."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "role" not in words[:4]:
            continue
        name = words[words.index("--name") + 1] if "--name" in words else words[4]
        if name == role:
            return int(child)
    return 0


def late(trial: Trial) -> Generator[Row]:
    """A replica joins a run under way; then it is ten times slower; then it is gone."""
    flow = trial.start_flow()
    trainer, one = trial.start_trainer(), trial.start_replica("one")
    trial.steps.reach(10)
    yield "steps in 20 s with one replica", _rate(trial, 20.0)
    began = time.monotonic()
    two = trial.start_replica("two")
    until(lambda: trial.holds("two") > 0, "the late replica to have prompts")
    first = next(line for line in two.words().splitlines() if line.startswith("weights "))
    yield "a replica joins late", f"{time.monotonic() - began:.1f} s from its start to prompts; {first}"
    yield "steps in 20 s with both", _rate(trial, 20.0)
    with slowed(two.pid):
        yield "steps in 20 s, one ten times slower", _rate(trial, 20.0)
        one.tell(signal.SIGSTOP)
        yield "steps in 20 s, the other one stopped", _rate(trial, 20.0)
        one.tell(signal.SIGCONT)
    trial.finish(trainer, one, two, flow)
    yield trial.check()


def _rate(trial: Trial, seconds: float) -> str:
    began, before = time.monotonic(), len(trial.steps.seen)
    time.sleep(seconds)
    made = len(trial.steps.seen) - before
    return f"{made}, longest time without one {trial.steps.gap(began, time.monotonic()):.1f} s"


@contextmanager
def slowed(pid: int) -> Generator[None]:
    """Let a process run a tenth of the time."""
    ends = threading.Event()

    def turns() -> None:
        while not ends.is_set():
            for number, seconds in ((signal.SIGSTOP, 0.45), (signal.SIGCONT, 0.05)):
                os.kill(pid, number)
                time.sleep(seconds)

    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def disk(trial: Trial) -> Generator[Row]:
    """The disk with the flow's log is full for ten seconds."""
    assert trial.log is not None
    flow = trial.start_flow()
    trainer, one = trial.start_trainer(), trial.start_replica("one")
    for _ in range(3):
        trial.steps.reach(5)
        filler = trial.log.parent / "filler"
        with _until_full(), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        full = time.monotonic()
        before = trial.steps.last
        time.sleep(10.0)
        made = trial.steps.last - before
        filler.unlink()
        room = time.monotonic()
        next_s = trial.steps.after(room, "a step after there is room again")
        yield (
            "the disk is full for 10 s",
            (
                f"{made} steps meanwhile; {next_s:.1f} s from room to the next step, "
                f"{trial.steps.gap(full, time.monotonic()):.1f} s without one"
            ),
        )
    said = next(line for line in flow.words().splitlines() if "free some space" in line)
    yield "it said", json.loads(said)["why"].replace(str(trial.log), "LOG")
    trial.finish(trainer, one, flow)
    yield trial.check()


@contextmanager
def _until_full() -> Generator[None]:
    """Until there is no room."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def cut(trial: Trial) -> Generator[Row]:
    """A replica on another host, whose link is cut in the middle of work; run on the flow's host."""
    far_host = os.environ["FAR"]
    flow = trial.start_flow()
    trainer, near = trial.start_trainer(), trial.start_replica("near")
    far = trial.start_replica("far", ["ip", "netns", "exec", far_host])
    until(lambda: trial.holds("far") > 0, "the far replica to have prompts")
    for alone in (False, False, True, True):
        if alone:
            near.tell(signal.SIGTERM)
            near.wait(0, 130)
        trial.steps.reach(3)
        until(lambda: trial.holds("far") > 0, "the far replica to work")
        _link(far_host, "down")
        down = time.monotonic()
        next_s = "none" if alone else f"{trial.steps.after(down, 'a step without the link'):.1f} s"
        time.sleep(max(0.0, down + 20.0 - time.monotonic()))
        _link(far_host, "up")
        up = time.monotonic()
        until(lambda: trial.holds("far") > 0, "the far replica to have prompts again")
        back_s = time.monotonic() - up
        after_s = trial.steps.after(up, "a step with the link")
        yield (
            f"cut off for 20 s, {'the only one' if alone else 'one of two'}",
            (
                f"next step after the cut: {next_s}; longest time without one "
                f"{trial.steps.gap(down, time.monotonic()):.1f} s; after the link is back: prompts "
                f"{back_s:.1f} s, next step {after_s:.1f} s"
            ),
        )
    trial.finish(trainer, far, flow)
    yield trial.check()


def _link(host: str, state: str) -> None:
    _ip("-n", host, "link", "set", "wire", state)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def place_of(case: str, folder: Path) -> Generator[Trial | None]:
    """Where a case runs: a trial here, or None for one that has run on a host of its own."""
    if case == "disk":
        mount = folder / "small"
        mount.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(mount)], check=True)
        try:
            with Trial(folder, log=mount / "flow") as trial:
                yield trial
        finally:
            subprocess.run(["umount", "-l", str(mount)], check=True)
    elif case == "cut" and "FAR" not in os.environ:
        near, far = (f"wf{os.getpid()}{end}" for end in "ab")
        try:
            for number, host in enumerate((near, far), 1):
                _ip("netns", "add", host)
                if number == 2:
                    _ip(
                        "-n",
                        near,
                        "link",
                        "add",
                        "wire",
                        "type",
                        "veth",
                        "peer",
                        "name",
                        "wire",
                        "netns",
                        far,
                    )
            for number, host in enumerate((near, far), 1):
                _ip("-n", host, "address", "add", f"10.78.0.{number}/24", "dev", "wire")
                _ip("-n", host, "link", "set", "wire", "up")
                _ip("-n", host, "link", "set", "lo", "up")
            inside = os.environ | {"FAR": far, "WHETSTONE_FLOW_TOKEN": os.urandom(16).hex()}
            again = [sys.executable, *sys.argv[:1], "cut", "--keep", str(folder)]
            subprocess.run(["ip", "netns", "exec", near, *again], check=True, env=inside)
            yield None
        finally:
            for host in (near, far):
                subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)
    else:
        with Trial(folder, host="10.78.0.1" if case == "cut" else "127.0.0.1") as trial:
            yield trial


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(NAMES))
    parser.add_argument("--keep", metavar="FOLDER", help="work there, and leave it")
    args = parser.parse_args()
    for case in args.cases or NAMES:
        folder = Path(args.keep or tempfile.mkdtemp(prefix="whetstone-faults-"))
        with place_of(case, folder) as trial:
            if trial is not None:
                print(f"# {case}", flush=True)
                for what, figures in {"kills": kills, "cut": cut, "late": late, "disk": disk}[case](trial):
                    print(f"| {what} | {figures} |", flush=True)
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
