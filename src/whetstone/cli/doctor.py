"""``whetstone doctor``: what this machine can do, proved by running probes."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.doctor_attack import run_attacks
from whetstone.cli.doctor_fuzz import run_fuzz
from whetstone.cli.doctor_stress import run_stress
from whetstone.errors import SandboxUnavailable, UserError
from whetstone.judge import Judge, Program
from whetstone.judge.environments.environment import (
    COMPETITION,
    Environment,
    default_environment,
    environment_named,
    named_environments,
)
from whetstone.judge.environments.missing import way_out
from whetstone.judge.languages.probe import probe_languages
from whetstone.judge.languages.toolchains import Availability, available_languages
from whetstone.progress import Progress
from whetstone.sandbox.priority import turn
from whetstone.sandbox.probe import ProbeResult, probe

# Run in a process of its own: torch takes seconds and memory to import, and can fail to.
_ACCELERATORS = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps([torch.__version__, [torch.cuda.get_device_name(i) for i in range(count)]]))
"""
_ACCELERATOR_TIMEOUT_S = 120
_SELF_TEST = {
    "id": "doctor/add",
    "statement": "",
    "tests": {"kind": "assert", "asserts": ["assert add(1, 2) == 3"]},
}


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "doctor",
        description="Find out what this machine can do, by trying: start each tier of isolation, attack the "
        "strongest, break its limits, judge a right and a wrong program. Status 1 when programs cannot be "
        "judged safely here.",
        epilog="examples: whetstone doctor --attack; whetstone doctor --attack --fuzz 600; "
        "whetstone doctor --stress 1000",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--attack",
        action="store_true",
        help="instead of probes, run the attack suite: every program that wants to be accepted without "
        "solving its problem, and its honest twin (about a minute on two cores)",
    )
    instead.add_argument(
        "--stress",
        type=int,
        metavar="N",
        help="instead of probes, judge N programs of known verdict (right, wrong, crashing, endless, "
        "greedy) on four workers for each core: every verdict must be as known, and nothing may be left over",
    )

    parser.add_argument(
        "--fuzz",
        type=float,
        metavar="SECONDS",
        help="with --attack: for so long, programs drawn at random in place of those of the suite; whatever "
        "they say to the processes that judge them, these must neither die, nor hang, nor tell, nor accept",
    )
    parser.add_argument("--seed", type=int, help="with --fuzz: of the first session, to see it again")


def run(args: argparse.Namespace) -> int:
    """Run the verb. Status 0 when programs can be judged here, 1 when not."""
    if args.fuzz is not None and not args.attack:
        raise UserError("`--fuzz` belongs to `--attack`: whetstone doctor --attack --fuzz SECONDS")
    if args.fuzz is not None:
        return run_fuzz(args.fuzz, args.seed, as_json=args.json)
    if args.attack:
        return run_attacks(as_json=args.json)
    if args.stress is not None:
        return run_stress(args.stress, as_json=args.json)
    with Progress() as progress:
        with progress.work("probing isolation", counted=False):
            probes = probe()
        with progress.work("judging a program in every language", counted=False):
            judging, languages = _judging()
        with progress.work("looking for accelerators", counted=False):
            accelerators = _accelerators()
    findings = [under_load(probes), judging]
    safe = all(found.ok for found in findings) and _all_hold(probes)
    if args.json:
        report = {
            "python": platform.python_version(),
            "cores": len(os.sched_getaffinity(0)),
            "languages": [
                {"name": found.language, "available": found.available, "detail": found.detail}
                for found in languages
            ],
            "environments": [{"label": found.label, "packages": found.versions} for found in _environments()],
            "accelerators": accelerators,
            "probes": [
                {"name": found.name, "ok": found.ok, "detail": found.detail} for found in probes + findings
            ],
            "safe": safe,
        }
        print(json.dumps(report, indent=2))
        return 0 if safe else 1
    _show(probes + findings, languages, accelerators, safe, Console())
    return 0 if safe else 1


def _all_hold(probes: list[ProbeResult]) -> bool:
    """Whether some tier starts and nothing got through it. Missing tiers and kernel parts are no failure."""
    optional = ("tier ", "landlock")
    tiers = [found for found in probes if found.name.startswith("tier ")]
    return any(tier.ok for tier in tiers) and all(
        found.ok for found in probes if not found.name.startswith(optional)
    )


def under_load(probes: list[ProbeResult]) -> ProbeResult:
    """Whether limits that are measured from outside hold while every core is fought for."""
    with turn() as mine:
        mine.go_first()
        first = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
    grouped = any(found.name == "counts memory" and found.detail.startswith("control") for found in probes)
    detail = (
        "the supervisor of many processes goes before all that compute"
        if first
        else "the supervisor waits for a core like any other process: now and then a run passes its limit on "
        f"CPU time{'' if grouped else ' or memory'} by more than a fifth before its end (docs/threats.md); "
        "run as root to have it go first"
    )
    return ProbeResult("limits under load", True, detail)


def _judging() -> tuple[ProbeResult, list[Availability]]:
    """Judge a right and a wrong program through the whole judge, and one in every language."""
    try:
        with Judge(workers=1) as judge:
            right = judge.judge(_SELF_TEST, Program("python", "def add(a, b):\n    return a + b\n"))
            wrong = judge.judge(_SELF_TEST, Program("python", "def add(a, b):\n    return a - b\n"))
            languages = probe_languages(judge)
    except SandboxUnavailable as error:
        return ProbeResult("judge", False, str(error)), available_languages()
    ok = right.accepted and wrong.verdict.value == "wrong_answer"
    detail = f"right program: {right.verdict.value}, wrong program: {wrong.verdict.value}"
    return ProbeResult("judge", ok, f"{detail} (isolation: {right.isolation})"), languages


def _accelerators() -> str:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed (training needs it: pip install 'whetstone-rl[train]')"
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _ACCELERATORS],
            capture_output=True,
            timeout=_ACCELERATOR_TIMEOUT_S,
            check=True,
        )
        version, names = json.loads(answer.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        return f"torch is installed but does not work: {error}"
    return f"torch {version}; " + (", ".join(names) if names else "no GPU that torch can use, so the CPU")


def _environments() -> list[Environment]:
    return [default_environment(), *map(environment_named, named_environments())]


def _packages() -> Table:
    """What Python programs may import, by environment, and what the default one lacks."""
    table = Table("", "environment", "packages for Python programs", box=None, pad_edge=False)
    for found in _environments():
        lacking = [name for name in COMPETITION if found.is_default and name not in found.modules]
        said = ", ".join(f"{name} {version}" for name, version in sorted(found.versions.items()))
        if lacking:
            said += f"{'; ' if said else ''}no {', no '.join(lacking)}: {way_out(lacking[0], found)}"
        mark = Text("no", style="yellow") if lacking else Text("yes", style="green")
        table.add_row(mark, found.label, Text(said))
    return table


def _show(
    findings: list[ProbeResult],
    languages: list[Availability],
    accelerators: str,
    safe: bool,
    console: Console,
) -> None:
    cores = len(os.sched_getaffinity(0))
    console.print(
        f"Python {platform.python_version()}, {cores} cores, {platform.system()} {platform.release()}"
    )
    console.print(Text(f"accelerators: {accelerators}"))
    spoken = Table("", "language", "version, or what is missing", box=None, pad_edge=False)
    for found in languages:
        mark = Text("yes", style="green") if found.available else Text("no", style="yellow")
        spoken.add_row(mark, found.language, Text(found.detail))
    console.print(spoken)
    console.print(_packages())
    table = Table("", "isolation", "what was seen", box=None, pad_edge=False)
    for found in findings:
        mark = Text("yes", style="green") if found.ok else Text("no", style="red")
        table.add_row(mark, found.name, Text(found.detail))
    console.print(table)
    verdict = "programs can be judged here" if safe else "programs cannot be judged safely here"
    console.print(Text(verdict, style="bold green" if safe else "bold red"))
