"""``whetstone data dedupe``, ``decontaminate`` and ``select``: a set in, a set and decisions out."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.data_show import SET_HELP
from whetstone.cli.options import add_replace_option
from whetstone.data.benchmark_index import BenchmarkIndex
from whetstone.data.case_choice import CASE_RULES
from whetstone.data.contamination import Contamination, Thresholds, drop_contaminated, find_contamination
from whetstone.data.dataset import check_step, open_problems, transform
from whetstone.data.decisions import Decision
from whetstone.data.duplicates import NEAR, drop_duplicates, find_duplicates
from whetstone.data.select import KINDS, ORDERS, Selection, select
from whetstone.outputs import write_file
from whetstone.problem import Problem
from whetstone.progress import Progress

Step = Callable[[Iterator[Problem]], Iterable[Problem | Decision]]

_DECONTAMINATE = """\
examples:
  whetstone data decontaminate sets/all --out sets/clean \\
      --against humaneval=HumanEval.jsonl.gz,mbpp=sanitized-mbpp.json
  whetstone data decontaminate sets/all --out sets/clean --against mine=held-out.parquet --ngram 13

rules: same statement; same tests; same solution; shared runs of words (--ngram, --overlap); similar statement
(--similar); shared cases under any name; the statement reworded (--reworded); all evidence together
(--together). Runs of words that many statements have, such as "write a function that takes a list of", do not
count. What came near a threshold is listed, so that it can be judged by eye.
"""
_SELECT = """\
examples:
  whetstone data select sets/clean --out sets/rl --min-tests 5 --max-tests 15         (DeepCoder's caps)
  whetstone data select sets/clean --out sets/rl --max-tests 8 --tests shortest       (Code-R1's)
  whetstone data select sets/rated --out sets/stage-1 --pass-rate 0.5..0.9 --order difficulty
"""


def add_actions(actions: Any) -> None:
    """Declare the actions."""
    _dedupe(actions)
    _decontaminate(actions)
    _select(actions)


def _dedupe(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser(
        "dedupe",
        help="drop problems that are the same problem, across sources",
        description="Drop problems with the same statement, with the same tests, or with near statements "
        "(and a common test case, or the same words) as one that stays: the one with more tests, then with "
        "a checker, with references, of the earlier source, with the smaller id. Statements that are alike "
        "and mean something else, such as templates with other numbers, are marked and stay.",
    )
    add_set_and_out(parser)
    parser.add_argument(
        "--near",
        type=float,
        default=NEAR,
        metavar="SHARE",
        help=f"Jaccard similarity of 3-word shingles from which statements are near (default: {NEAR})",
    )


def _decontaminate(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser(
        "decontaminate",
        help="drop problems that a benchmark holds too",
        description="Drop problems that occur in the benchmarks that you will measure on, and say in which, "
        "by which rule and how much.",
        epilog=_DECONTAMINATE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_set_and_out(parser)
    parser.add_argument(
        "--against",
        required=True,
        metavar="NAME[=PATH],…",
        help="benchmarks of `whetstone eval` with their files, or NAME=SET for any problem set",
    )
    usual = Thresholds()
    parser.add_argument(
        "--ngram", type=int, default=usual.ngram, metavar="N", help=f"words in a run (default: {usual.ngram})"
    )
    parser.add_argument(
        "--overlap",
        type=float,
        default=usual.overlap,
        metavar="SHARE",
        help=f"of the shorter statement's runs that convicts (default: {usual.overlap})",
    )
    parser.add_argument(
        "--similar",
        type=float,
        default=usual.similar,
        metavar="SHARE",
        help=f"Jaccard similarity of 3-word shingles that convicts (default: {usual.similar})",
    )
    parser.add_argument(
        "--reworded",
        type=float,
        default=usual.reworded,
        metavar="TIMES",
        help="multiplies the likeness from which a reworded statement convicts (default: 1; 2 is never)",
    )
    parser.add_argument(
        "--together",
        type=float,
        default=usual.together,
        metavar="SUM",
        help="of statement, cases, solution and name that convicts (default: 1)",
    )
    parser.add_argument("--report", metavar="FILE", help="also write all that was found there, as JSON")


def _select(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser(
        "select",
        help="filter problems, cap their tests, draw some, put them in order",
        description="Take the problems that fit, with at most so many tests each, in an order. Everything "
        "that draws is seeded.",
        epilog=_SELECT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_set_and_out(parser)
    tests = parser.add_argument_group("tests")
    tests.add_argument("--max-tests", type=int, default=0, metavar="N", help="keep at most N (default: all)")
    tests.add_argument(
        "--tests", choices=CASE_RULES, default="longest", help="which of them, by input (default: longest)"
    )
    tests.add_argument("--min-tests", type=int, default=0, metavar="N", help="drop problems with fewer")
    which = parser.add_argument_group("problems")
    which.add_argument("--kinds", type=_names, default=(), metavar="KIND,…", help=f"of {', '.join(KINDS)}")
    which.add_argument("--languages", type=_names, default=(), metavar="NAME,…", help="such as python,cpp")
    which.add_argument("--sources", type=_names, default=(), metavar="NAME,…", help="that they came from")
    which.add_argument(
        "--pass-rate",
        type=_bounds,
        metavar="LO..HI",
        help="measured by `whetstone data difficulty`, such as 0.1..0.9",
    )
    which.add_argument("--max-problems", type=int, default=0, metavar="N", help="draw at most N of them")
    parser.add_argument(
        "--order",
        choices=ORDERS,
        default="as-is",
        help="difficulty: solved most often first; length: shortest statement first; source-mix: every "
        "source spread evenly; shuffle (default: as-is)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of all draws (default: 0)")


def add_set_and_out(parser: argparse.ArgumentParser) -> None:
    """Declare the set that a step reads and the one that it writes."""
    parser.add_argument("set", metavar="SET", help=SET_HELP)
    parser.add_argument(
        "--out", required=True, metavar="OUT", help="the new dataset folder, or a problem file by its ending"
    )
    add_replace_option(parser)


def run_dedupe(args: argparse.Namespace) -> int:
    """Drop duplicates."""
    check_step(args.set, args.out, replace=args.replace)
    with Progress(Console()) as progress:
        matches = find_duplicates(lambda: progress.track(open_problems(args.set), "comparing"), args.near)
        write_step(args.set, args.out, drop_duplicates(matches), progress)
    return 0


def run_decontaminate(args: argparse.Namespace) -> int:
    """Drop what benchmarks hold. Raises UserError for benchmarks that cannot be read."""
    thresholds = Thresholds(args.ngram, args.overlap, args.similar, args.reworded, args.together)
    console = Console()
    against = [part.partition("=")[2] or part for part in _names(args.against)]
    check_step(args.set, args.out, args.report, inputs=against, replace=args.replace)
    with Progress(Console()) as progress:
        index = BenchmarkIndex(thresholds.ngram)
        for name, problems in _benchmarks(args.against, console):
            index.add(name, progress.track(problems, f"reading {name}"))
        found = find_contamination(
            lambda: progress.track(open_problems(args.set), "comparing"), index, thresholds
        )
        write_step(args.set, args.out, drop_contaminated(found.found), progress)
    _print_contamination(found, index, console)
    if args.report:
        _write_report(Path(args.report), found, index, thresholds)
    return 0


def run_select(args: argparse.Namespace) -> int:
    """Select. Raises UserError for options that cannot be."""
    selection = Selection(
        max_tests=args.max_tests,
        tests=args.tests,
        min_tests=args.min_tests,
        kinds=args.kinds,
        languages=args.languages,
        sources=args.sources,
        pass_rate=args.pass_rate,
        max_problems=args.max_problems,
        order=args.order,
        seed=args.seed,
    )
    check_step(args.set, args.out, replace=args.replace)
    with Progress(Console()) as progress:
        write_step(args.set, args.out, lambda problems: select(problems, selection), progress)
    return 0


def write_step(source: str, out: str, step: Step, progress: Progress) -> None:
    """Run a step over a set, write what comes out, and print what happened, by reason."""
    reasons: Counter[tuple[str, str]] = Counter()

    def counting(problems: Iterator[Problem]) -> Iterator[Problem | Decision]:
        for result in step(progress.track(problems, "writing")):
            if isinstance(result, Decision):
                reasons[result.action, result.reason] += 1
            yield result

    counts = transform(source, out, counting)
    progress.say(
        f"{out}: {counts.kept} of {counts.read} problems; {counts.dropped} dropped, {counts.marked} marked"
    )
    for (action, reason), number in sorted(reasons.items()):
        progress.say(f"  {action} {reason}: {number}")


def _benchmarks(against: str, console: Console) -> Iterator[tuple[str, Iterable[Problem]]]:
    from whetstone.evaluate.benchmarks import BENCHMARKS, load_benchmark

    for part in _names(against):
        name, _, path = part.partition("=")
        if name.split(":")[0] in BENCHMARKS:
            benchmark = load_benchmark(name, path or None)
            for reason, count in benchmark.left_out.items():
                console.print(f"{name}: {count} rows are not compared: {reason}", highlight=False)
            yield name, benchmark.problems
        else:
            yield name, open_problems(path or name)


def _print_contamination(found: Contamination, index: BenchmarkIndex, console: Console) -> None:
    sizes = ", ".join(f"{name} ({count})" for name, count in index.sizes.items())
    console.print(f"held against {sizes}", highlight=False, soft_wrap=True)
    if not found.near_misses:
        return
    table = Table("problem", "benchmark's", "rule", "measure", "drops from", box=None, title="nearest misses")
    for match in found.near_misses:
        row = (match.problem_id, match.where, match.rule, f"{match.measure:.2f}", f"{match.threshold:.2f}")
        table.add_row(*map(Text, row))
    console.print(table)


def _write_report(file: Path, found: Contamination, index: BenchmarkIndex, thresholds: Thresholds) -> None:
    report = {
        "benchmarks": dict(index.sizes),
        "thresholds": thresholds,
        "checked": found.checked,
        "contaminated": list(found.found.values()),
        "near_misses": found.near_misses,
    }
    write_file(file, [msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"])


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _bounds(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    try:
        if dots:
            return float(low), float(high)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected bounds such as 0.1..0.9; got {text!r}")
