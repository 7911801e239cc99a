"""Results as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from speed.race import Batch
from speed.roster import ROSTER

OURS = "whetstone"
FLOORS = ("empty", "floor")


def table(results: Mapping[str, Mapping[str, Sequence[Batch]]], workload: str, tasks: int, cases: int) -> str:
    """One workload: medians over its batches of ``tasks`` tasks, ``cases`` cases together."""
    rows = [
        "| | isolation | CPU ms per case | of ours | tasks per CPU second | wall ms per task | accepted |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    ours = _cpu(results, OURS, workload)
    for name, batches in results.items():
        if batches[workload]:
            cpu = _cpu(results, name, workload)
            wall = median(b.wall_s for b in batches[workload])
            accepted = "" if name in FLOORS else f"{min(b.accepted for b in batches[workload])} of {tasks}"
            ratio = f"{cpu / ours:.1f}x" if ours else ""
            rows.append(
                f"| {ROSTER[name].label} | {ROSTER[name].isolated} | {cpu / cases * 1e3:.2f} | {ratio} "
                f"| {tasks / cpu:.1f} | {wall / tasks * 1e3:.1f} | {accepted} |"
            )
    return "\n".join(rows)


def targets(results: Mapping[str, Mapping[str, Sequence[Batch]]], workloads: Mapping[str, str]) -> str:
    """The targets and what was reached; ``workloads`` maps roles (one, ten, fifty) to workload names."""
    one, ten = workloads["one"], workloads["ten"]
    rows = ["| target | reached |", "| --- | --- |"]
    for label, wanted, other, workload, inverse in (
        ("a case within 2x of the fresh-fork floor (10 cases)", 2.0, "floor", ten, True),
        ("30x less CPU per case than firejail with Code-R1's flags", 30.0, "firejail", ten, False),
        ("5x less CPU per case than bwrap", 5.0, "bwrap", ten, False),
        (
            "5x the tasks per CPU second of `prime_code` as verl imports it (10 cases)",
            5.0,
            "prime",
            ten,
            False,
        ),
        ("the same of its module alone (10 cases)", 5.0, "prime-alone", ten, False),
        ("5x the tasks per CPU second of ScaleBox's handler (10 cases)", 5.0, "scalebox", ten, False),
        ("the same with 1 case", 5.0, "scalebox", one, False),
    ):
        ours, theirs = _cpu(results, OURS, workload), _cpu(results, other, workload)
        if ours and theirs:
            ratio = ours / theirs if inverse else theirs / ours
            reached = ratio <= wanted if inverse else ratio >= wanted
            rows.append(f"| {label} | {ratio:.1f}x: {'yes' if reached else '**no**'} |")
    return "\n".join(rows)


def _cpu(results: Mapping[str, Mapping[str, Sequence[Batch]]], name: str, workload: str) -> float:
    batches = results.get(name, {}).get(workload, [])
    return median(b.cpu_s for b in batches) if batches else 0.0
