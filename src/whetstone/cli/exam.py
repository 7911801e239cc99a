"""``whetstone exam``: examine a judge with hacks and honest programs."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.flags import add_command, run_command
from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.flag import Flag
from whetstone.core.outputs import check_outputs, replacing
from whetstone.core.progress import Progress

if TYPE_CHECKING:
    from whetstone.testing.exam.exam import GradedItem
    from whetstone.testing.exam.items import ExamItem
    from whetstone.testing.exam.scorecard import Scorecard
    from whetstone.testing.exam.targets import ExamTarget

_SHOWN = 5


class _Exam(Struct, frozen=True, kw_only=True):
    """The judge to examine, and the items."""

    target: Annotated[
        str,
        Flag(
            "self: this judge; http://…: a service; or module:function(problem, program) -> bool or float",
            "TARGET",
            positional=True,
        ),
    ]
    tier: Annotated[
        Literal["root", "userns", "restricted"] | None,
        Flag("the isolation of `self` (default: the strongest here)", "TIER"),
    ] = None
    items: Annotated[
        int, Meta(ge=0), Flag("examine N items, spread over all classes; 0 (default): all", "N")
    ] = 0
    mutants: Annotated[
        int, Meta(ge=0), Flag("wrong programs for each problem: a reference with one change", "N")
    ] = 1
    seed: Annotated[int, Flag("seed of the choice and of the changes", "SEED")] = 0
    rounds: Annotated[
        int, Meta(ge=1), Flag("judge every item N times, on a busy machine in every second round", "N")
    ] = 1
    item: Annotated[str | None, Flag("run one item, and explain it", "ID")] = None
    list_: Annotated[bool, Flag("print the ids of the items", name="list")] = False
    python: Annotated[str, Flag("the interpreter of a function (default: this one)", "PYTHON")] = ""
    workers: Annotated[
        int, Meta(ge=0), Flag("judgements at once (default: one for each core; for `self` four)", "N")
    ] = 0
    timeout: Annotated[float, Meta(gt=0), Flag("seconds for an answer of a function", "S")] = 60.0
    unprotected: Annotated[
        bool, Flag("run a function without namespaces of its own: hostile programs can then reach your files")
    ] = False
    json: Annotated[str | None, Flag("write the scorecard as JSON", "FILE")] = None
    html: Annotated[str | None, Flag("write the scorecard as a page", "FILE")] = None
    replace: Annotated[bool, Flag("replace an existing output")] = False


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    add_command(
        subparsers,
        "exam",
        exam,
        help="examine a judge: hacks must be rejected, honest programs accepted",
        description="Judge the programs of the attack corpus with TARGET: hacks, honest programs with the "
        "same features, and reference solutions. A function runs in a process of its own, which cannot write "
        "files, use the network or outlive the exam. The exit status is 0 if no hack was accepted, no honest "
        "program rejected, "
        "and no answer changed between rounds; otherwise 1.",
        epilog="examples: whetstone exam self; whetstone exam http://127.0.0.1:8080 --items 100; whetstone "
        "exam "
        "my_grader:grade --json score.json; whetstone exam my_grader:grade --item 'hack/early_exit/ID'",
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    return run_command(args)


def exam(options: _Exam) -> int:
    """Run the command. Returns 1 if an item failed."""
    from whetstone.testing.attacks.corpus import load_corpus
    from whetstone.testing.exam.exam import run_exam
    from whetstone.testing.exam.items import exam_items, sample_items
    from whetstone.testing.exam.page import scorecard_page
    from whetstone.testing.exam.scorecard import Scorecard, figures
    from whetstone.testing.exam.wrong_programs import wrong_programs

    check_outputs(options.json, options.html, replace=options.replace)
    corpus = load_corpus()
    items = exam_items(corpus)
    # Selecting wrong programs takes seconds, so one other item is examined without them.
    if options.mutants and (options.item is None or options.item.startswith("wrong/")):
        items += wrong_programs(corpus.problems, options.mutants, options.seed)
    if options.list_:
        print("\n".join(item.id for item in items))
        return 0
    chosen = (
        [_item(items, options.item)] if options.item else sample_items(items, options.items, options.seed)
    )
    cpu = _cpu_of_children()
    target = _target(options)
    began = time.monotonic()
    try:
        with Progress() as progress, progress.work("examining", len(chosen) * options.rounds) as work:
            graded = run_exam(target, chosen, options.rounds, work.advance)
    finally:
        target.close()
    seconds = time.monotonic() - began
    # The processes of a function are killed in their namespace, and the kernel then reports no time of them.
    cpu_s = round(_cpu_of_children() - cpu, 1) if options.target == "self" else None
    card = Scorecard(target.name, target.protection, options.rounds, seconds, cpu_s, graded)
    if options.json:
        with replacing(options.json) as temporary:
            temporary.write_text(json.dumps(figures(card), indent=1) + "\n", encoding="utf-8")
    if options.html:
        with replacing(options.html) as temporary:
            temporary.write_text(scorecard_page(card, lambda item: _command(item, options)), encoding="utf-8")
    if options.item:
        _explain(chosen[0], graded)
    else:
        _show(card, options)
    return 1 if card.failed else 0


def _cpu_of_children() -> float:
    """Return the CPU seconds of processes that have ended, with those below them."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _item(items: list[ExamItem], name: str) -> ExamItem:
    by_id = {item.id: item for item in items}
    if name not in by_id:
        raise UserError(f"--item: no item {name!r}{did_you_mean(name, by_id)}; --list prints all")
    return by_id[name]


def _target(options: _Exam) -> ExamTarget:
    from whetstone.testing.exam.targets import JudgeTarget

    cores = len(os.sched_getaffinity(0))
    if options.target == "self":
        from whetstone.judge import Judge

        # Some programs wait for their whole time limit, so more workers than cores have work.
        judge = Judge(options.workers or 4 * cores, tier=options.tier)
        return JudgeTarget(f"whetstone, isolation {judge.isolation}", judge)
    if options.tier is not None:
        raise UserError("--tier chooses the isolation of `self`; leave it out for other targets")
    if options.target.startswith(("http://", "https://")):
        from whetstone.service.client import JudgeClient

        return JudgeTarget(options.target, JudgeClient(options.target))
    module, colon, name = options.target.partition(":")
    if not (module and colon and name):
        raise UserError(
            f"TARGET is {options.target!r}; give `self`, the http:// address of a service, or module:function"
        )
    from whetstone.testing.exam.callable_target import CallableTarget

    return CallableTarget(
        options.target,
        python=options.python,
        workers=options.workers or cores,
        timeout_s=options.timeout,
        unprotected=options.unprotected,
    )


def _show(card: Scorecard, options: _Exam) -> None:
    from whetstone.testing.exam.exam import (
        ACCEPTED_HACK,
        ACCEPTED_WRONG,
        FLIP,
        KNOWN,
        NO_ANSWER,
        REJECTED_HONEST,
        UNSUPPORTED,
    )

    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(f"{card.target}: {len(card.items)} items, {card.rounds} rounds, {card.seconds:.0f} s"))
    if card.protection:
        console.print(Text(f"protection of this machine: {card.protection}"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right")
    table.add_column()
    table.add_row(str(card.count(ACCEPTED_HACK)), f"hacks accepted, of {card.examined('hack')}")
    table.add_row(str(card.count(REJECTED_HONEST)), f"honest programs rejected, of {card.examined('honest')}")
    table.add_row(str(card.count(ACCEPTED_WRONG)), f"wrong programs accepted, of {card.examined('wrong')}")
    table.add_row(str(card.count(FLIP)), "answers that changed between rounds")
    for outcome, text in (
        (KNOWN, "hacks accepted that this isolation is known not to stop (docs/threats.md)"),
        (NO_ANSWER, "without a verdict: the target failed or did not answer in time"),
        (UNSUPPORTED, "that the target has no form for"),
    ):
        if count := card.count(outcome):
            table.add_row(str(count), text)
    console.print(table)
    if (median := card.latency(0.5)) is not None:
        console.print(Text(f"seconds for an answer: median {median:.3f}, p95 {card.latency(0.95):.3f}"))
    if card.cpu_s is not None:
        console.print(Text(f"CPU seconds, with the start of the judge: {card.cpu_s:.0f}"))
    for outcome in (ACCEPTED_HACK, REJECTED_HONEST, ACCEPTED_WRONG, FLIP):
        _list(console, [graded for graded in card.failed if graded.outcome == outcome], outcome, options)


def _list(console: Console, failed: list[GradedItem], outcome: str, options: _Exam) -> None:
    if not failed:
        return
    console.print(Text(f"\n{outcome}: {len(failed)}", style="bold red"))
    for graded in failed[:_SHOWN]:
        console.print(Text(f"  {graded.item.id}: {graded.item.aim}"))
    if len(failed) > _SHOWN:
        console.print(Text(f"  and {len(failed) - _SHOWN} more; --json lists all"))
    for sentence in dict.fromkeys(graded.invariant for graded in failed):
        console.print(Text(f"  not guaranteed: {sentence}"))
    console.print(Text(f"  again: {_command(failed[0].item, options)}"))


def _command(item: ExamItem, options: _Exam) -> str:
    words = ["whetstone", "exam", options.target, "--item", item.id]
    words += ["--tier", options.tier] if options.tier else []
    words += ["--python", options.python] if options.python else []
    words += ["--unprotected"] if options.unprotected else []
    words += ["--seed", str(options.seed)] if item.kind == "wrong" and options.seed else []
    words += ["--rounds", str(options.rounds)] if options.rounds > 1 else []
    return shlex.join(words)


def _explain(item: ExamItem, graded: list[GradedItem]) -> None:
    from whetstone.testing.exam.invariants import invariant_of

    write = sys.stdout.write
    write(f"{item.id}\n\nAim: {item.aim}.\n")
    write(f"A right judge {'accepts' if item.must_accept else 'rejects'} this program.\n")
    write(f"It examines this guarantee: {invariant_of(item.class_name)}\n\n")
    write(f"Problem {item.problem.id}:\n{_indented(_tests(item))}\n\n")
    write(f"Program:\n{_indented(item.program.source)}\n\n")
    if not graded:
        write("It was not run: it exhausts a machine, and this target has no sandbox.\n")
    for one in graded:
        for answer in one.answers:
            word = {True: "accepted", False: "rejected", None: "no verdict"}[answer.accepted]
            write(f"Answer: {word} ({answer.detail})\n")
        write(f"Outcome: {one.outcome}\n")


def _tests(item: ExamItem) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(item.problem.tests), indent=1).decode()


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip("\n").splitlines())
