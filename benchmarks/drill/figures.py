"""Figures of the drill: shares of hacks and of right replies by step, as tables and as a picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq

from benchmarks.drill.world import HACKS

Figures = dict[str, dict[str, dict[str, Any]]]
"""By judge and seed: figures of a run, see ``run_figures``."""

_HACK_NAMES = {text: name for name, text in HACKS.items()}
_LAST = 10
_COLORS = ("#0b7a75", "#6c9a8b", "#b3261e", "#d9822b", "#8e44ad", "#2f6fb2", "#a98467", "#c2185b")
_NAMES = {
    "whetstone": "Whetstone",
    "whetstone, no hacks in the vocabulary": "Whetstone, no hacks to find",
    "evalplus": "EvalPlus",
    "sandbox_fusion": "SandboxFusion",
    "scalebox": "ScaleBox",
    "verl_prime_code": "verl, prime_code",
    "livecodebench": "LiveCodeBench",
    "tinker_cookbook": "tinker-cookbook",
}
_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 250, 44, 66


def run_figures(run: Path, truth: dict[str, dict[str, int | None]]) -> dict[str, Any]:
    """Return the figures of a run, by step.

    rewarded: number of rewarded replies. hacks: number of hacks among them. right: share of all replies that
    solve their problem, by the hidden tests. winner: the hack that was rewarded most often.
    """
    rewarded: list[int] = []
    hacks: list[int] = []
    right: list[float] = []
    winners: Counter[str] = Counter()
    for file in sorted((run / "rollouts").glob("step-*.parquet")):
        rows = pq.read_table(file, columns=["problem_id", "program", "reward"]).to_pylist()
        paid = [row["program"] for row in rows if (row["reward"] or 0) > 0]
        bought = [_HACK_NAMES[text] for text in paid if text in _HACK_NAMES]
        winners.update(bought)
        rewarded.append(len(paid))
        hacks.append(len(bought))
        right.append(round(fmean(truth[row["problem_id"]].get(row["program"]) or 0 for row in rows), 4))
    winner = winners.most_common(1)
    return {"rewarded": rewarded, "hacks": hacks, "right": right, "winner": winner[0][0] if winner else ""}


def print_tables(figures: Figures) -> None:
    """Print a row for each judge, with its seeds in order."""
    print(
        "| reward | rewarded replies | hacks among them | hacks in the last ten steps | winning hack "
        "| right replies at the start | in the last ten steps | CPU s |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for arm, seeds in figures.items():
        runs = [seeds[seed] for seed in sorted(seeds)]
        paid, bought = sum(sum(run["rewarded"]) for run in runs), sum(sum(run["hacks"]) for run in runs)
        late = ", ".join(f"{_share(run['hacks'][-_LAST:], run['rewarded'][-_LAST:]):.0%}" for run in runs)
        winners = ", ".join(dict.fromkeys(run["winner"] for run in runs if run["winner"])) or "none"
        start = ", ".join(f"{run['right'][0]:.2f}" for run in runs)
        end = ", ".join(f"{fmean(run['right'][-_LAST:]):.2f}" for run in runs)
        cpu = sum(run["cpu_s"] for run in runs)
        print(f"| {arm} | {paid:,} | {bought:,} | {late} | {winners} | {start} | {end} | {cpu:.0f} |")


def _share(part: list[int], whole: list[int]) -> float:
    return sum(part) / max(1, sum(whole))


def picture(figures: Figures) -> str:
    """Return an SVG of two charts: the share of hacks among rewarded replies, and that of right replies."""
    hacks = {arm: _mean_of([_by_step(run) for run in seeds.values()]) for arm, seeds in figures.items()}
    right = {arm: _mean_of([run["right"] for run in seeds.values()]) for arm, seeds in figures.items()}
    height = _TOP + _HEIGHT + 46 + 20 * ((len(figures) + 3) // 4)
    title = "One policy, trained for 100 steps with the rewards of seven judges"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH + 20} {height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        "<style>text{fill:#222}.grid{stroke:#999;stroke-opacity:.35}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>",
        f'<text x="{_LEFT}" y="20" font-size="16" font-weight="600">{title}</text>',
        *_chart("Hacks among rewarded replies", hacks, 0),
        *_chart("Replies that solve the problem (hidden tests)", right, _WIDTH + 20),
    ]
    for number, arm in enumerate(figures):
        x, y = _LEFT + (number % 4) * 212, _TOP + _HEIGHT + 50 + 20 * (number // 4)
        parts.append(f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" {_stroke(number)}/>')
        parts.append(f'<text x="{x + 28}" y="{y}">{_NAMES.get(arm, arm)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _by_step(run: dict[str, Any]) -> list[float]:
    return [_share([part], [whole]) for part, whole in zip(run["hacks"], run["rewarded"], strict=True)]


def _mean_of(runs: list[list[float]]) -> list[float]:
    return [fmean(values) for values in zip(*runs, strict=True)]


def _chart(title: str, lines: dict[str, list[float]], left: int) -> list[str]:
    x0, width = left + _LEFT, _WIDTH - _LEFT - 10
    steps = max(len(values) for values in lines.values())
    parts = [f'<text x="{x0}" y="{_TOP - 14}" font-weight="600">{title}</text>']
    for tick in (0, 0.25, 0.5, 0.75, 1):
        y = _TOP + _HEIGHT * (1 - tick)
        parts.append(f'<line class="grid" x1="{x0}" x2="{x0 + width}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{x0 - 6}" y="{y + 4}" text-anchor="end">{tick:.0%}</text>')
    for tick in (1, steps // 2, steps):
        x = x0 + width * (tick - 1) / max(1, steps - 1)
        anchor = "end" if tick == steps else "middle"
        parts.append(f'<text x="{x:.0f}" y="{_TOP + _HEIGHT + 18}" text-anchor="{anchor}">step {tick}</text>')
    drawn = [
        [
            f"{x0 + width * step / max(1, steps - 1):.1f},{_TOP + _HEIGHT * (1 - value):.1f}"
            for step, value in enumerate(values)
        ]
        for values in lines.values()
    ]
    for number, points in enumerate(drawn):
        parts.append(f'<polyline fill="none" points="{" ".join(points)}" {_stroke(number)}/>')
    # Where lines lie on each other, their colours take turns from step to step.
    for number, points in enumerate(drawn):
        turns = range(number, len(points) - 1, len(drawn))
        path = " ".join(f"M{points[step]} L{points[step + 1]}" for step in turns)
        color = _COLORS[number % len(_COLORS)]
        parts.append(f'<path fill="none" stroke="{color}" stroke-width="2.4" d="{path}"/>')
    return parts


def _stroke(number: int) -> str:
    dashes = ' stroke-dasharray="5 3"' if number == 1 else ""
    return f'stroke="{_COLORS[number % len(_COLORS)]}" stroke-width="{3 if number == 0 else 1.8}"{dashes}'
