"""Results as Markdown. ``Results`` maps contestants to the batches of one workload, one for each round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from speed.race import Batch
from speed.roster import ROSTER

Results = Mapping[str, Sequence[Batch]]
OURS = "whetstone"
SEQUENCE = "sequence"
FLOORS = ("empty", "floor")


def merged(results: Mapping[str, Mapping[str, Sequence[Batch]]], workloads: Iterable[str]) -> Results:
    """Several workloads of the same rounds as one: their batches added up, round by round."""
    names = list(workloads)
    return {
        contestant: [_sum(batches) for batches in zip(*(by_name[name] for name in names), strict=True)]
        for contestant, by_name in results.items()
    }


def _sum(batches: Sequence[Batch]) -> Batch:
    return Batch(
        sum(b.cpu_s for b in batches), sum(b.wall_s for b in batches), sum(b.accepted for b in batches)
    )


def table(results: Results, tasks: int, cases: int) -> str:
    """One workload: medians over its batches of ``tasks`` tasks, ``cases`` cases together."""
    rows = [
        "| | isolation | CPU ms per case | of ours | tasks per CPU second | wall ms per task | accepted |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    ours = _cpu(results, OURS)
    for name, batches in results.items():
        cpu = _cpu(results, name)
        if cpu:
            wall = median(b.wall_s for b in batches)
            accepted = "" if name in FLOORS else f"{min(b.accepted for b in batches)} of {tasks}"
            ratio = f"{cpu / ours:.1f}x" if ours else ""
            rows.append(
                f"| {ROSTER[name].label} | {ROSTER[name].isolated} | {cpu / cases * 1e3:.2f} | {ratio} "
                f"| {tasks / cpu:.1f} | {wall / tasks * 1e3:.1f} | {accepted} |"
            )
    return "\n".join(rows)


def by_program(programs: Mapping[str, Results], cases: int) -> str:
    """CPU of a case of each program, and how ours stands to the floor and to the other sandboxes."""
    rows = [
        "| program | empty fork ms | floor ms | ours ms | ours to floor | bwrap to ours | firejail to ours |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for program, results in programs.items():
        ours, floor = _cpu(results, OURS), _cpu(results, "floor")
        figures = [_cpu(results, name) / cases * 1e3 for name in (*FLOORS, OURS)]
        ratios = [_ratio(ours, floor), *(_ratio(_cpu(results, name), ours) for name in ("bwrap", "firejail"))]
        rows.append(f"| {program} | {' | '.join([*(f'{f:.2f}' for f in figures), *ratios])} |")
    return "\n".join(rows)


def _ratio(left: float, right: float) -> str:
    return f"{left / right:.1f}x" if left and right else ""


def targets(one: Results, ten: Results) -> str:
    """The targets and what was reached, from the small programs with 1 and with 10 cases."""
    rows = ["| target | reached |", "| --- | --- |"]
    for label, wanted, other, results in (
        ("30x less CPU per case than firejail with Code-R1's flags", 30.0, "firejail", ten),
        ("5x less CPU per case than bwrap", 5.0, "bwrap", ten),
        ("5x the tasks per CPU second of `prime_code` as verl imports it, 10 cases", 5.0, "prime", ten),
        ("5x the tasks per CPU second of `prime_code` by itself, 10 cases", 5.0, "prime-alone", ten),
        ("5x the tasks per CPU second of ScaleBox's handler, 10 cases", 5.0, "scalebox", ten),
        ("the same, 1 case", 5.0, "scalebox", one),
    ):
        ours, theirs = _cpu(results, OURS), _cpu(results, other)
        if ours and theirs:
            rows.append(
                f"| {label} | {theirs / ours:.1f}x: {'yes' if theirs >= wanted * ours else '**no**'} |"
            )
    in_sequence = _cpu(ten, SEQUENCE)
    for label, other in (
        ("the same of `prime_code` as verl imports it, cases in sequence", "prime"),
        ("the same of `prime_code` by itself, cases in sequence", "prime-alone"),
        ("the same of ScaleBox's handler, cases in sequence", "scalebox"),
    ):
        theirs = _cpu(ten, other)
        if in_sequence and theirs:
            reached = "yes" if theirs >= 5 * in_sequence else "**no**"
            rows.append(f"| 10 cases: {label} | {theirs / in_sequence:.1f}x: {reached} |")
    ours, floor = _cpu(ten, OURS), _cpu(ten, "floor")
    if ours and floor:
        reached = "yes" if ours <= 2 * floor else "**no**"
        rows.append(f"| a case within 2x of the fresh-fork floor | {ours / floor:.1f}x: {reached} |")
    return "\n".join(rows)


def _cpu(results: Results, name: str) -> float:
    batches = results.get(name, [])
    return median(b.cpu_s for b in batches) if batches else 0.0
