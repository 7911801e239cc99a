"""``whetstone data dedupe``, ``decontaminate`` and ``select``: read a set, write a set and the decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.data_show import SET_HELP
from whetstone.cli.flags import command
from whetstone.core.flag import Flag
from whetstone.core.outputs import write_file
from whetstone.core.problem import Problem
from whetstone.core.progress import Progress
from whetstone.core.settings import NonEmpty, Section
from whetstone.data.benchmark_index import BenchmarkIndex
from whetstone.data.contamination import Contamination, Decontamination, drop_contaminated, find_contamination
from whetstone.data.dataset import check_step, open_problems, transform
from whetstone.data.decisions import ProblemDecision
from whetstone.data.duplicates import Deduplication, drop_duplicates, find_duplicates
from whetstone.data.select import Selection, select

Step = Callable[[Iterator[Problem]], Iterable[Problem | ProblemDecision]]

_DECONTAMINATE = """\
examples:
  whetstone data decontaminate sets/all --out sets/clean \\
      --against humaneval=HumanEval.jsonl.gz,mbpp=sanitized-mbpp.json
  whetstone data decontaminate sets/all --out sets/clean --against mine=held-out.parquet --ngram 13

rules: same statement; same tests; same solution; shared n-grams of words (--ngram, --overlap); similar
statement (--similar); shared cases under any name; a reworded statement (--reworded); all evidence together
(--together). N-grams that many statements have, such as "write a function that takes a list of", do not
count. The problems closest to a threshold are listed for a check by hand.
"""
_SELECT = """\
examples:
  whetstone data select sets/clean --out sets/rl --min-tests 5 --max-tests 15
  whetstone data select sets/clean --out sets/rl --max-tests 8 --tests shortest
  whetstone data select sets/rated --out sets/stage-1 --pass-rate 0.5..0.9 --order difficulty

The first are DeepCoder's caps, the second Code-R1's.
"""


class StepFiles(Section):
    """The set that a step reads and the set that it writes."""

    set: Annotated[NonEmpty, Flag(SET_HELP, "SET", positional=True)]
    out: Annotated[NonEmpty, Flag("the new dataset folder, or a problem file by its ending", "OUT")]
    replace: Annotated[bool, Flag("replace an existing output")] = False

    def check(self, *more: str | None, inputs: Iterable[str] = ()) -> None:
        """Raise UserError if the output, or one of the ``more`` outputs, cannot be written."""
        check_step(self.set, self.out, *more, inputs=list(inputs), replace=self.replace)


class Report(Section):
    """The file for the findings."""

    report: Annotated[NonEmpty | None, Flag("also write all findings to this file, as JSON", "FILE")] = None


@command(
    "dedupe",
    help="drop duplicate problems, also across sources",
    description="Drop duplicates: problems with the same statement, the same tests, or a similar "
    "statement (and a common test case, or the same words). The problem with more tests is "
    "kept; then the one with a checker, with references, of the earlier source, with the "
    "smaller id. Problems with similar statements and another meaning, such as templates "
    "with other numbers, are kept and marked.",
)
def dedupe(files: StepFiles, settings: Deduplication) -> int:
    """Drop duplicates."""
    files.check()
    with Progress(Console()) as progress:
        # A function instead of a list: the step reads the set several times, and a set may be larger than
        # memory.
        matches = find_duplicates(lambda: progress.track(open_problems(files.set), "comparing"), settings)
        write_step(files, drop_duplicates(matches), progress)
    return 0


@command(
    "decontaminate",
    help="drop problems that a benchmark contains",
    description="Drop problems that occur in the benchmarks of later evaluations. Every decision names "
    "the benchmark, the rule and the measured similarity.",
    epilog=_DECONTAMINATE,
)
def decontaminate(files: StepFiles, settings: Decontamination, report: Report) -> int:
    """Drop problems that benchmarks contain. Raises UserError for unreadable benchmarks."""
    console, against = Console(), settings.against
    files.check(report.report, inputs=[path or name for name, path in against.items()])
    with Progress(Console()) as progress:
        index = BenchmarkIndex(settings.ngram)
        for name, problems in _benchmarks(against, console):
            index.add(name, progress.track(problems, f"reading {name}"))
        # The benchmarks are read first: the index of them stays in memory, and the set is streamed.
        found = find_contamination(
            lambda: progress.track(open_problems(files.set), "comparing"), index, settings
        )
        write_step(files, drop_contaminated(found.found), progress)
    _print_contamination(found, index, console)
    if report.report:
        _write_report(Path(report.report), found, index, settings)
    return 0


@command(
    "select",
    help="filter problems, limit their tests, take a random sample, order them",
    description="Keep the problems that match, limit the tests of each, and order the problems. Random "
    "choices are seeded.",
    epilog=_SELECT,
)
def run_select(files: StepFiles, selection: Selection) -> int:
    """Select problems and tests."""
    files.check()
    with Progress(Console()) as progress:
        write_step(files, lambda problems: select(problems, selection), progress)
    return 0


def write_step(files: StepFiles, step: Step, progress: Progress) -> None:
    """Run a step on a set, write the result, and print the number of decisions by reason."""
    reasons: Counter[tuple[str, str]] = Counter()

    # Decisions are counted while they stream through: a set may be larger than memory.
    def count_decisions(problems: Iterator[Problem]) -> Iterator[Problem | ProblemDecision]:
        for result in step(progress.track(problems, "writing")):
            if isinstance(result, ProblemDecision):
                reasons[result.action, result.reason] += 1
            yield result

    counts = transform(files.set, files.out, count_decisions)
    progress.say(
        f"{files.out}: {counts.kept} of {counts.read} problems; "
        f"{counts.dropped} dropped, {counts.marked} marked"
    )
    for (action, reason), number in sorted(reasons.items()):
        progress.say(f"  {action} {reason}: {number}")


def _benchmarks(
    against: Mapping[str, str | None], console: Console
) -> Iterator[tuple[str, Iterable[Problem]]]:
    from whetstone.evaluate.benchmarks import BENCHMARKS, load_benchmark

    for name, path in against.items():
        if name.split(":")[0] in BENCHMARKS:
            benchmark = load_benchmark(name, path)
            for reason, count in benchmark.left_out.items():
                console.print(f"{name}: {count} rows are not compared: {reason}", highlight=False)
            yield name, benchmark.problems
        else:
            yield name, open_problems(path or name)


def _print_contamination(found: Contamination, index: BenchmarkIndex, console: Console) -> None:
    sizes = ", ".join(f"{name} ({count})" for name, count in index.sizes.items())
    console.print(f"compared with {sizes}", highlight=False, soft_wrap=True)
    if not found.near_misses:
        return
    table = Table("problem", "benchmark's", "rule", "measure", "drops from", box=None, title="nearest misses")
    for match in found.near_misses:
        row = (match.problem_id, match.where, match.rule, f"{match.measure:.2f}", f"{match.threshold:.2f}")
        table.add_row(*map(Text, row))
    console.print(table)


def _write_report(file: Path, found: Contamination, index: BenchmarkIndex, settings: Decontamination) -> None:
    report = {
        "benchmarks": dict(index.sizes),
        "thresholds": settings.model_dump(exclude={"against"}),
        "checked": found.checked,
        "contaminated": list(found.found.values()),
        "near_misses": found.near_misses,
    }
    write_file(file, [msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"])
