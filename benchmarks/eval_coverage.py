"""How often the intervals that evaluations print hold the true mean, beside those of others.

    .venv/bin/python benchmarks/eval_coverage.py greedy     # one reply a problem: exact sums, no simulation
    .venv/bin/python benchmarks/eval_coverage.py samples    # n = 8: pass@1 and pass@4, simulated
    .venv/bin/python benchmarks/eval_coverage.py pairs      # differences of two evaluations

The problems of an evaluation are a sample: what an interval should hold is the mean over all problems like
them. Difficulty is drawn anew for each problem from a Beta distribution; "alike" is the share of the
variance of replies that lies between problems (0: all problems are equally hard; 1: each is solved always
or never, and eight replies say no more than one). Needs numpy and scipy (the extra ``programs``).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import exp, lgamma

import numpy as np
from scipy import stats

from whetstone.core.intervals import difference_interval, share_interval
from whetstone.evaluate.passk import pass_at_k

Interval = tuple[float, float]
SIZES = (20, 30, 50, 100, 164, 200, 378, 500)
RATES = np.round(np.arange(0.02, 0.98001, 0.001), 4)
ALIKE = (0.0, 0.1, 0.3, 0.6, 0.9)
N = 8
RESAMPLES = 1000


def greedy() -> None:
    """Coverage over the rates, of one reply to each problem."""
    print("| problems | interval | lowest | at p = | mean | width | 0 right |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for size in SIZES:
        right = np.arange(size + 1)
        chances = stats.binom.pmf(right[:, None], size, RATES[None])
        for name, ends in _greedy_intervals(size).items():
            low, high = np.array(ends).T
            held = (low[:, None] <= RATES) & (high[:, None] >= RATES)
            coverage = (chances * held).sum(0)
            width = (chances * (high - low)[:, None]).sum(0).mean()
            worst = coverage.argmin()
            print(
                f"| {size} | {name} | {coverage[worst]:.1%} | {RATES[worst]:g} | {coverage.mean():.1%} "
                f"| {width * 100:.1f} | {low[0] * 100:.1f} to {high[0] * 100:.1f} |"
            )


def _greedy_intervals(size: int) -> dict[str, list[Interval]]:
    """For each number of right replies."""
    x = np.arange(size + 1)
    z = 1.959964
    middle, half = (
        (x + z * z / 2) / (size + z * z),
        z / (size + z * z) * np.sqrt(x * (size - x) / size + z * z / 4),
    )
    jeffreys = stats.beta.ppf([[0.025], [0.975]], x + 0.5, size - x + 0.5)
    return {
        "percentile bootstrap": _pairs(stats.binom.ppf([[0.025], [0.975]], size, x / size) / size),
        "Wilson": _pairs(np.array([middle - half, middle + half])),
        "Jeffreys": _pairs(jeffreys),
        "ours": [share_interval([1.0] * int(c) + [0.0] * int(size - c)) for c in x],
    }


def _pairs(ends: np.ndarray) -> list[Interval]:
    return [(float(low), float(high)) for low, high in ends.T]


class Held:
    """How often the truth was held, and how wide the intervals were."""

    def __init__(self) -> None:
        self.trials = self.held = 0
        self.width = 0.0

    def add(self, interval: Interval, truth: float) -> None:
        """Count an interval."""
        self.trials += 1
        self.held += interval[0] - 1e-12 <= truth <= interval[1] + 1e-12
        self.width += interval[1] - interval[0]

    @property
    def coverage(self) -> float:
        """The share that held it."""
        return self.held / self.trials


def samples(trials: int, rng: np.random.Generator) -> None:
    """Simulated coverage of pass@1 and pass@4 of 8 replies: the lowest over the rates."""
    rates = (0.02, 0.03, 0.05, 0.1, 0.3, 0.5, 0.9, 0.95, 0.98)
    print("| figure | problems | alike | lowest | at p = | mean | width | bootstrap: lowest | mean | width |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for k in (1, 4):
        values = np.array([pass_at_k(N, c, k) for c in range(N + 1)])
        for size in (20, 50, 100, 164, 500):
            for alike in ALIKE:
                ours, old = dict[float, Held](), dict[float, Held]()
                for p in rates:
                    truth = _true_pass(p, alike, k)
                    ours[p], old[p] = Held(), Held()
                    for _ in range(trials):
                        counts = np.bincount(
                            rng.binomial(N, _difficulty(p, alike, size, rng)), minlength=N + 1
                        )
                        ours[p].add(_shares(tuple(counts.tolist()), k), truth)
                        old[p].add(_bootstrap(values, counts, rng), truth)
                print(
                    f"| pass@{k} | {size} | {alike} | {_row(ours)} | {_row(old, where=False)} |", flush=True
                )


@lru_cache(1 << 20)
def _shares(counts: tuple[int, ...], k: int) -> Interval:
    return share_interval([pass_at_k(N, c, k) for c, times in enumerate(counts) for _ in range(times)])


def _difficulty(p: float, alike: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """The rate at which each problem is solved."""
    if alike == 0:
        return np.full(size, p)
    total = 1 / alike - 1
    return rng.beta(p * total, (1 - p) * total, size)


def _true_pass(p: float, alike: float, k: int) -> float:
    """E[1 - (1 - q)^k] for a problem's rate q."""
    return 1 - (1 - p) ** k if alike == 0 else 1 - _moment(1 - p, alike, k)


def _moment(p: float, alike: float, power: float) -> float:
    """E[q^power] of a Beta distributed q with mean p."""
    total = 1 / alike - 1
    a = p * total
    return exp(lgamma(a + power) - lgamma(a) + lgamma(total) - lgamma(total + power))


def _bootstrap(values: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> Interval:
    """The percentile bootstrap over problems, which was printed before."""
    size = int(counts.sum())
    means = rng.multinomial(size, counts / size, RESAMPLES) @ values / size
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _row(cells: dict[float, Held], *, where: bool = True) -> str:
    worst = min(cells, key=lambda p: cells[p].coverage)
    mean = sum(c.coverage for c in cells.values()) / len(cells)
    width = sum(c.width / c.trials for c in cells.values()) / len(cells)
    place = f" | {worst:g}" if where else ""
    return f"{cells[worst].coverage:.1%}{place} | {mean:.1%} | {width * 100:.1f}"


def pairs(trials: int, rng: np.random.Generator) -> None:
    """One reply: the lowest over a grid of shares gained and lost. Eight: over rates before and after."""
    print("| replies | problems | interval | lowest | at | mean | width |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for size in (20, 30, 50, 100, 164):
        for name, interval in (("Wald", _wald), ("ours", difference_interval)):
            _print_grid(size, name, interval)
    for size in (20, 50, 100, 164, 500):
        _print_simulated(size, trials, rng)


def _print_grid(size: int, name: str, interval: Callable[[Sequence[float]], Interval]) -> None:
    """Exact, over every share gained and lost in steps of 2%."""
    gained, lost = (a.ravel() for a in np.meshgrid(np.arange(size + 1), np.arange(size + 1)))
    there = gained + lost <= size
    gained, lost = gained[there], lost[there]
    ends = [
        interval([1.0] * g + [-1.0] * w + [0.0] * (size - g - w))
        for g, w in zip(gained.tolist(), lost.tolist(), strict=True)
    ]
    low, high = np.array(ends).T
    shares = np.round(np.arange(0, 1.0001, 0.02), 4)
    found: list[tuple[float, str, float]] = []
    for b in shares:
        for w in shares[(shares <= 1 - b + 1e-9) & (shares + b > 0)]:
            chance = stats.multinomial.pmf(
                np.stack([gained, lost, size - gained - lost], 1), size, [b, w, max(1 - b - w, 0.0)]
            )
            held = (low - 1e-12 <= b - w) & (b - w <= high + 1e-12)
            found.append((float(chance[held].sum()), f"+{b:g}, -{w:g}", float((chance * (high - low)).sum())))
    coverage, at, _ = min(found)
    mean, width = (sum(row[i] for row in found) / len(found) for i in (0, 2))
    print(f"| 1 | {size} | {name} | {coverage:.1%} | {at} | {mean:.1%} | {width * 100:.1f} |", flush=True)


def _print_simulated(size: int, trials: int, rng: np.random.Generator) -> None:
    """Eight replies before and after; each problem's rate q becomes q to the power of 1 or 0.7."""
    names = ("percentile bootstrap", "Wald", "ours")
    cells: dict[str, dict[str, Held]] = {name: {} for name in names}
    values = np.arange(-N, N + 1) / N
    for p in (0.02, 0.05, 0.2, 0.5, 0.8, 0.95, 0.98):
        for alike in (0.0, 0.3, 0.9):
            for power in (1.0, 0.7):
                truth = (p**power if alike == 0 else _moment(p, alike, power)) - p
                at = f"p = {p:g}, alike {alike:g}, {truth * 100:+.1f}"
                held = [cells[name].setdefault(at, Held()) for name in names]
                for _ in range(trials):
                    rate = _difficulty(p, alike, size, rng)
                    steps = rng.binomial(N, rate**power) - rng.binomial(N, rate)
                    counts = np.bincount(steps + N, minlength=2 * N + 1)
                    held[0].add(_bootstrap(values, counts, rng), truth)
                    held[1].add(_wald((steps / N).tolist()), truth)
                    held[2].add(difference_interval((steps / N).tolist()), truth)
    for name, row in cells.items():
        worst = min(row, key=lambda at: row[at].coverage)
        mean = sum(c.coverage for c in row.values()) / len(row)
        width = sum(c.width / c.trials for c in row.values()) / len(row)
        print(
            f"| 8 | {size} | {name} | {row[worst].coverage:.1%} | {worst} | {mean:.1%} | {width * 100:.1f} |",
            flush=True,
        )


def _wald(values: Sequence[float]) -> Interval:
    counts = Counter(values)
    mean = sum(v * c for v, c in counts.items()) / len(values)
    variance = sum(c * (v - mean) ** 2 for v, c in counts.items()) / (len(values) - 1)
    half = 1.959964 * (variance / len(values)) ** 0.5
    return mean - half, mean + half


def main() -> None:
    """Print the tables of one kind of figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("greedy", "samples", "pairs"))
    parser.add_argument(
        "--trials", type=int, default=1000, help="simulated evaluations in each place (default: 1000)"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    if options.kind == "greedy":
        greedy()
    elif options.kind == "samples":
        samples(options.trials, rng)
    else:
        pairs(options.trials, rng)


if __name__ == "__main__":
    main()
