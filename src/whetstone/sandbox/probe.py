"""Probes for ``whetstone doctor``: a program attacks each layer of isolation."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass

from whetstone.sandbox.fork_server import ForkServer, StartRefused
from whetstone.sandbox.job import EndReason, RunLimits, RunResult, SandboxFault, SandboxJob, Tier
from whetstone.sandbox.run import SandboxRun
from whetstone.sandbox.supervision import supervise
from whetstone.sandbox.tiers import BUILTIN_HARNESSES, SCRIPT, start_at
from whetstone.sandbox.zygote import landlock

_LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 16)


@dataclass(frozen=True)
class ProbeResult:
    """One layer: whether it holds on this machine, and what was observed."""

    name: str
    ok: bool
    detail: str


# Each attack is a function that returns what it achieved, or raises if it was stopped.
_ATTACKS = b"""
import ctypes, json, os, socket, sys

def read_host_file(): return open("/etc/passwd").read(20)
def open_a_socket(): return str(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
def see_other_processes():
    if os.path.isdir("/proc/1"): return os.listdir("/proc")
    raise OSError("no /proc")
def write_outside_tmp(): open("/usr/lib/whetstone-probe", "w"); return "created a file"
def write_where_the_caller_can():
    open(sys.stdin.readline().strip(), "w"); return "created a file"
def signal_the_fork_server(): os.kill(os.getppid() or 1, 15); return "signalled"
def trace_a_process():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(0, 0, 0, 0) == 0: return "ptrace(TRACEME) allowed"
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def read_the_callers_environment():
    others = os.environ.keys() - {"PATH", "LANG", "HOME", "TMPDIR"}
    if others: return "variables " + ", ".join(others)
    raise OSError("only " + ", ".join(sorted(os.environ)))
def inherit_a_descriptor():
    found = []
    for fd in range(3, 256):
        try: os.fstat(fd); found.append(fd)
        except OSError: pass
    if found != [7]: return "descriptors %s" % found
    raise OSError("only 0, 1, 2 and the result descriptor")

report = {}
for attack in (read_host_file, open_a_socket, see_other_processes, write_outside_tmp,
               write_where_the_caller_can, signal_the_fork_server, trace_a_process,
               read_the_callers_environment, inherit_a_descriptor):
    try: report[attack.__name__] = [False, str(attack())]
    except OSError as error: report[attack.__name__] = [True, str(error)]
print(json.dumps(report))
"""

_LIMIT_PROBES = (
    ("cpu limit", EndReason.CPU_LIMIT, b"while True: pass", RunLimits(0.2, 512 << 20, 1 << 16)),
    (
        "wall limit",
        EndReason.WALL_LIMIT,
        b"import time; time.sleep(60)",
        RunLimits(5, 512 << 20, 1 << 16, 0.3),
    ),
    ("memory limit", EndReason.MEMORY_LIMIT, b"x = bytearray(1 << 30)", RunLimits(5, 128 << 20, 1 << 16)),
    (
        "output limit",
        EndReason.OUTPUT_LIMIT,
        b"while True: print('x' * 999)",
        RunLimits(5, 512 << 20, 1 << 16),
    ),
)
_FORKED = b"import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        %s\ntime.sleep(60)"
_BOMB = b"import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
_FORK = b"import os\nos.fork()"
# Limits on all processes of a run together. Where they are not available, a program may have no second
# process.
_TREE_PROBES = (
    ("cpu limit, over processes", EndReason.CPU_LIMIT, _FORKED % b"while True: pass", _LIMIT_PROBES[0][3]),
    (
        *("memory limit, over processes", EndReason.MEMORY_LIMIT),
        *(_FORKED % b"x = bytearray(b'x') * (60 << 20); time.sleep(60)", RunLimits(5, 200 << 20, 1 << 16)),
    ),
    ("process limit", EndReason.PROCESS_LIMIT, _BOMB, RunLimits(20, 2 << 30, 1 << 16)),
)


def probe(*, limits: bool) -> list[ProbeResult]:
    """Start every tier, then attack the strongest one that starts. ``limits``: also exceed its limits."""
    version = landlock.version()
    detail = f"interface version {version}" if version else "not in this kernel"
    results = [ProbeResult("landlock", version > 0, detail)]
    strongest: ForkServer | None = None
    for tier in sorted(Tier, reverse=True):
        try:
            server = start_at(tier, BUILTIN_HARNESSES)
        except StartRefused as refused:
            results.append(ProbeResult(f"tier {tier.label}", False, str(refused)))
            continue
        results.append(ProbeResult(f"tier {tier.label}", True, "started, and ran a program"))
        if strongest is None:
            strongest = server
        else:
            server.close()
    return results if strongest is None else results + attack(strongest, limits=limits)


def attack(server: ForkServer, *, limits: bool) -> list[ProbeResult]:
    """Run the attacks on the tier of a fork-server, which is closed afterwards."""
    try:
        with tempfile.TemporaryDirectory() as directory:
            target = os.path.join(directory, "written").encode()
            [result] = supervise(
                [SandboxRun(server, SandboxJob(SCRIPT, _ATTACKS, _LIMITS, stdin=target + b"\n"), 1)]
            )
        accounted = server.accounting
        results = _attack_results(result)
        results += [ProbeResult(f"counts {name}", True, who) for name, who in accounted.describe().items()]
        if not accounted.whole_tree:
            [result] = supervise([SandboxRun(server, SandboxJob(SCRIPT, _FORK, _LIMITS), 2)])
            message = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            name = "a program cannot start a process"
            results.append(ProbeResult(name, result.exit_code == 1, message or result.ended))
        return results + _limit_results(server) if limits else results
    except SandboxFault as fault:
        return [ProbeResult("sandbox", False, str(fault))]
    finally:
        if server.alive:
            server.close()


def _limit_results(server: ForkServer) -> list[ProbeResult]:
    results: list[ProbeResult] = []
    probes = (*_LIMIT_PROBES, *_TREE_PROBES) if server.accounting.whole_tree else _LIMIT_PROBES
    for number, (name, expected, source, limits) in enumerate(probes, 3):
        [result] = supervise([SandboxRun(server, SandboxJob(SCRIPT, source, limits), number)])
        cost = f"{result.cpu_s:.2f} s CPU, {result.wall_s:.2f} s, {result.peak_bytes >> 20} MiB"
        results.append(ProbeResult(name, result.ended is expected, f"{result.ended}: {cost}"))
    return results


def _attack_results(result: RunResult) -> list[ProbeResult]:
    try:
        report: dict[str, tuple[bool, str]] = json.loads(result.stdout)
    except ValueError:
        return [ProbeResult("attacks", False, f"{result.ended}: {result.stderr[-300:]!r}")]
    return [
        ProbeResult("a program cannot " + name.replace("_", " "), stopped, detail)
        for name, (stopped, detail) in report.items()
    ]
