"""``whetstone data build``: a whole journey from one file, by the commands that are there for its steps."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone import __version__
from whetstone.cli import (
    data_convert,
    data_difficulty,
    data_prepare,
    data_steps,
    data_strengthen,
    data_validate,
)
from whetstone.cli.judge_options import add_workers_option
from whetstone.cli.options import add_replace_option
from whetstone.data.card import (
    Card,
    JourneyRecord,
    JourneyStep,
    PublishedCount,
    read_card,
)
from whetstone.data.dataset import SPLITS, check_destination, is_dataset, open_problems, place_of, publish
from whetstone.data.journey import Journey, PrepareStep, Step, load_journey
from whetstone.data.sources.table import source_named
from whetstone.data.validate.policy import read_policy
from whetstone.errors import UserError
from whetstone.outputs import check_outputs, work_folder
from whetstone.settings import Section

_DESCRIPTION = """\
Build a dataset as a file says it: sources, steps in their order, layout. Every step is the command of its
name (`whetstone data STEP --help`), with the options of its section. What a step made waits in OUT.steps: the
same command again goes on, and after a change begins with the first step that it changes. The funnel is
printed beside the numbers that the authors published, and stands in the data card.
"""
_EXAMPLES = """\
examples:
  whetstone data build recipes/data/builtin.yaml --out sets/builtin
  whetstone data build recipes/data/archer.yaml prepare.sources.archer.path=downloads/archer
  whetstone data build recipes/data/builtin.yaml steps.1.select.max_tests=8 --out sets/eight
"""
STEPS: dict[str, Callable[[argparse.Namespace], int]] = {
    "prepare": data_prepare.run_prepare,
    "validate": data_validate.run,
    "strengthen": data_strengthen.run,
    "dedupe": data_steps.run_dedupe,
    "decontaminate": data_steps.run_decontaminate,
    "difficulty": data_difficulty.run,
    "select": data_steps.run_select,
    "convert": data_convert.run,
}
"""What runs each step that a journey may have: actions of ``whetstone data``."""
_JUDGING = {"validate", "strengthen", "difficulty"}
_REPEATED = {"drop", "mark", "ignore"}
"""Options that are given once for each value; those of other lists have commas between."""


class _Stage(Struct, frozen=True):
    """A step of the journey: its command, the words after the set that it reads, and the files it reads."""

    label: str
    command: str
    words: list[str]
    reads: list[str]


def add_action(actions: Any) -> None:
    """Declare the action."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "build",
        help="a whole journey from one file, and its funnel beside what was published",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", metavar="FILE", help="a YAML file, or one that ships: builtin (`whetstone recipes --data`)"
    )
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="other values for keys of the file")
    parser.add_argument("--out", metavar="DIR", help="the dataset folder to write (default: sets/NAME)")
    add_replace_option(parser)
    add_workers_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the action. Raises UserError for a file that cannot be, and for everything that it misses."""
    if args.workers < 0:
        raise UserError(f"--workers is {args.workers}; give 0 (one for each core) or more")
    build(args.file, args.overrides, args.out, workers=args.workers, replace=args.replace)
    return 0


def build(
    file: str,
    overrides: Sequence[str] = (),
    to: str | None = None,
    *,
    workers: int = 0,
    replace: bool = False,
) -> None:
    """Make the dataset folder ``to`` (``sets/NAME`` unless given) as a journey's ``file`` says.

    Raises UserError for a file that cannot be, and for everything that it misses.
    """
    journey = load_journey(file, overrides)
    out = Path(to or f"sets/{journey.name}")
    stages = _stages(journey)
    target = out.with_name(f"{out.name}.{journey.layout.name}") if journey.layout else None
    splits = [target / f"{split}.parquet" for split in SPLITS] if target else []
    named = [journey.start or "", *(name for stage in stages for name in stage.reads)]
    reads = [file, *(place_of(name) for name in named if name)]
    check_outputs(check_destination(out), *splits, inputs=reads, replace=replace)
    _check_all_there(file, journey)
    work = out.with_name(f"{out.name}.steps")  # what the steps made stays beside the dataset
    with work_folder(work, out, "building"):
        last, taken = _take(journey, stages, work, workers)
        record = _record(journey, taken)
        publish(last, out, record)
    if journey.layout and target:
        skip = ["--skip"] if journey.layout.skip else []
        _call("convert", [str(out), str(target), "--layout", journey.layout.name, *skip, "--replace"])
    _print_funnel(record, out, Console())


def _stages(journey: Journey) -> list[_Stage]:
    labels = iter(journey.labels())
    stages: list[_Stage] = []
    if journey.prepare:
        stages.append(_prepare(journey.prepare, next(labels)))
    stages += [_stage(step, next(labels)) for step in journey.steps]
    return stages


def _prepare(step: PrepareStep, label: str) -> _Stage:
    words = [f"{name}={at.path}" if at.path else name for name, at in step.sources.items()]
    for name, at in step.sources.items():
        if at.revision and not at.path:
            words += ["--revision", f"{name}={at.revision}"]
    for split in step.splits:
        words += ["--split", split]
    words += _options(step, without={"sources", "splits"})
    return _Stage(label, "prepare", words, [at.path for at in step.sources.values() if at.path])


def _stage(step: Step, label: str) -> _Stage:
    words: list[str] = []
    reads: list[str] = []
    if step.decontaminate:
        against = step.decontaminate.against
        words = ["--against", ",".join(f"{name}={path}" if path else name for name, path in against.items())]
        reads = [path or name for name, path in against.items()]
    elif step.validate_ and step.validate_.policy:
        reads = [step.validate_.policy]
    elif step.difficulty and step.difficulty.from_eval:
        reads = [step.difficulty.from_eval]
    elif step.select and step.select.pass_rate:
        low, high = step.select.pass_rate
        words = ["--pass-rate", f"{low}..{high}"]
    words += _options(step.options, without={"against", "pass_rate"})
    return _Stage(label, step.command, words, reads)


def _options(section: Section, *, without: set[str]) -> list[str]:
    """A section's values as the command line's words; what is as usual is left to the command."""
    words: list[str] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if name in without or value == field.default:
            continue
        option = "--" + name.replace("_", "-")
        if not isinstance(value, tuple):
            words.append(f"{option}={value}")
        elif name in _REPEATED:
            words += [f"{option}={one}" for one in value]
        else:
            words.append(f"{option}={','.join(map(str, value))}")
    return words


def _check_all_there(file: str, journey: Journey) -> None:
    """Raise UserError that names everything the journey misses, each with what gets it."""
    missing = list(_missing(journey))
    if missing:
        raise UserError(f"{file}: not everything is there, and nothing was begun:\n  " + "\n  ".join(missing))


def _missing(journey: Journey) -> Iterator[str]:
    if journey.start is not None:
        yield from _fault("start", lambda: next(open_problems(str(journey.start)), None))
    for name, at in journey.prepare.sources.items() if journey.prepare else ():
        key = f"prepare.sources.{name}"
        if at.path:
            yield from _no_file(f"{key}.path", at.path)
        elif source_named(name).hub_id is None:
            yield f"`{key}`: is not on the hub; give its files, {key}.path=PATH"
        else:
            yield from _no_package(key, "huggingface_hub", "data", f", or give its files, {key}.path=PATH")
    for number, step in enumerate(journey.steps):
        yield from _missing_of(step, f"steps.{number}.{step.command}")


def _missing_of(step: Step, key: str) -> Iterator[str]:
    from whetstone.evaluate.benchmarks import BENCHMARKS

    if step.validate_ and (policy := step.validate_.policy):
        yield from _fault(f"{key}.policy", lambda: read_policy(policy))
    for name, path in step.decontaminate.against.items() if step.decontaminate else ():
        at = f"{key}.against.{name}"
        known = BENCHMARKS.get(name.split(":")[0])
        if known is None:
            yield from _fault(at, lambda named=path or name: next(open_problems(named), None))
        elif path:
            yield from _no_file(at, path)
        elif known.source is None:
            yield f"`{at}`: needs its file, {at}=PATH"
        elif source_named(known.source).package is None:
            yield from _no_package(at, "huggingface_hub", "data", f", or give its file, {at}=PATH")
    if step.difficulty:
        if step.difficulty.from_eval:
            yield from _no_file(f"{key}.from_eval", step.difficulty.from_eval)
        elif step.difficulty.endpoint:
            yield from _no_package(key, "httpx2", "eval")
        else:
            yield from _no_package(key, "torch", "train", ", or give an endpoint")


def _fault(key: str, look: Callable[[], object]) -> Iterator[str]:
    try:
        look()
    except UserError as error:
        yield f"`{key}`: {error}"


def _no_file(key: str, path: str) -> Iterator[str]:
    if not Path(path).exists():
        yield f"`{key}`: {path}: no such file or folder; give {key}=PATH"


def _no_package(key: str, module: str, extra: str, else_: str = "") -> Iterator[str]:
    if importlib.util.find_spec(module) is None:
        yield f"`{key}`: needs {module}: pip install 'whetstone-rl[{extra}]'{else_}"


def _take(
    journey: Journey, stages: Iterable[_Stage], work: Path, workers: int
) -> tuple[Path, list[JourneyStep]]:
    """Take the steps whose outputs are not there yet; returns the last output, and what each step did.

    A step's folder is named by all that made it, so one that is there is whole and of the same inputs.
    """
    before, card, key = journey.start, _card(journey.start), _key(journey.start or "")
    count = 0 if before is None else sum(1 for _ in open_problems(before))
    taken: list[JourneyStep] = []
    console = Console()
    for number, stage in enumerate(stages, 1):
        key = _key(key, stage.command, *stage.words, reads=stage.reads)
        folder = work / f"{number}-{stage.label}-{key[:12]}"
        earlier = is_dataset(folder) and read_card(folder) is not None
        console.print(f"{number}. {stage.label}{': is there' if earlier else ''}", style="bold")
        if not earlier:
            machine = ["--workers", str(workers)] if stage.command in _JUDGING else []
            given = [] if before is None else [before]
            _call(stage.command, [*given, *stage.words, *machine, "--out", str(folder), "--replace"])
        taken.append(step := _taken(stage, folder, card, count))
        if not step.kept:
            raise UserError(
                f"{stage.label}: keeps no problem ({_words(step)}); change its section of the file"
            )
        before, card, count = str(folder), read_card(folder), step.kept
    return Path(before or ""), taken


def _call(command: str, words: list[str]) -> None:
    STEPS[command](_commands().parse_args([command, *words]))


def _commands() -> argparse.ArgumentParser:
    """The commands of the steps, as ``whetstone data`` declares them."""
    parser = argparse.ArgumentParser(prog="whetstone data")
    actions = parser.add_subparsers(dest="action", required=True)
    for module in (data_prepare, data_steps):
        module.add_actions(actions)
    for module in (data_validate, data_strengthen, data_difficulty, data_convert):
        module.add_action(actions)
    return parser


def _key(*made_of: str, reads: Iterable[str] = ()) -> str:
    """What makes a step's output: the version, its options, the output before it, and the files it reads."""
    named = [made_of[0]] if len(made_of) == 1 else []
    files = [place for name in [*named, *reads] if name and (place := place_of(name)).exists()]
    inner = [file for place in files for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in inner]
    return hashlib.sha256(json.dumps([__version__, made_of, stats]).encode()).hexdigest()


def _card(start: str | None) -> Card | None:
    return None if start is None else read_card(place_of(start))


def _taken(stage: _Stage, folder: Path, before: Card | None, count: int) -> JourneyStep:
    """What a step did: the difference between the cards before and after it."""
    card = read_card(folder)
    if card is None:
        raise UserError(f"{folder}: its card cannot be read; remove the folder and give the command again")
    reasons = _reasons(card)
    reasons.subtract(_reasons(before))
    read = sum(source.rows for source in card.sources) if stage.command == "prepare" else count
    return JourneyStep(
        stage.label,
        read,
        sum(card.problems.values()),
        {why: n for why, n in sorted(reasons.items()) if n > 0},
    )


def _reasons(card: Card | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for reason in (reason for step in (card.funnel if card else ()) for reason in step.reasons):
        if reason.action != "keep":
            counts[f"{reason.action} {reason.reason}"] += reason.count
    return counts


def _record(journey: Journey, taken: list[JourneyStep]) -> JourneyRecord:
    published = [PublishedCount(said.after, said.count, said.where) for said in journey.published]
    return JourneyRecord(journey.name, journey.title, taken, published)


def _print_funnel(record: JourneyRecord, out: Path, console: Console) -> None:
    console.print(Text(record.title or record.name, style="bold"), soft_wrap=True)
    table = Table("step", box=None, pad_edge=False)
    for column in ("read", "kept"):
        table.add_column(column, justify="right")
    table.add_column("published")
    for step in record.steps:
        if step.step == "prepare" and (said := record.said_after("rows")):
            table.add_row("rows", "", f"{step.read:,}", Text(_published(said)))
        said = _published(record.said_after(step.step))
        table.add_row(step.step, f"{step.read:,}", f"{step.kept:,}", Text(said))
        for reason, number in step.reasons.items():
            table.add_row(Text(f"  {reason}", style="dim"), "", Text(f"{number:,}", style="dim"), "")
    console.print(table)
    console.print(f"{out}: {record.steps[-1].kept:,} problems", highlight=False, soft_wrap=True)


def _published(said: Iterable[PublishedCount]) -> str:
    return "; ".join(f"{count.count:,} ({count.where})" for count in said)


def _words(step: JourneyStep) -> str:
    return ", ".join(f"{reason}: {number}" for reason, number in step.reasons.items()) or "it read none"
