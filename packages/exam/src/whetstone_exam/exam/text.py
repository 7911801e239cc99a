"""What ``whetstone exam`` prints: a scorecard, or the explanation of one item."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone_exam.exam.grading import FAILED_OUTCOMES, GradedItem, Outcome
from whetstone_exam.exam.invariants import invariant_of
from whetstone_exam.exam.items import ExamItem
from whetstone_exam.exam.scorecard import Scorecard

_SHOWN = 5


def print_scorecard(card: Scorecard, command: Callable[[ExamItem], str]) -> None:
    """Print the figures, and what failed. ``command``: the command that examines one item again."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(f"{card.target}: {len(card.items)} items, {card.rounds} rounds, {card.seconds:.0f} s"))
    if card.protection:
        console.print(Text(f"protection of this machine: {card.protection}"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right")
    table.add_column()
    for outcome, text in (
        (Outcome.ACCEPTED_HACK, f"hacks accepted, of {card.answered('hack')}"),
        (Outcome.REJECTED_HONEST, f"honest programs rejected, of {card.answered('honest')}"),
        (Outcome.ACCEPTED_WRONG, f"wrong programs accepted, of {card.answered('wrong')}"),
        (Outcome.FLIP, "answers that changed between rounds"),
    ):
        table.add_row(str(card.count(outcome)), text)
    for outcome, text in (
        (Outcome.KNOWN, "hacks accepted that this isolation is known not to stop (docs/threats.md)"),
        (Outcome.BROKEN, "hacks that made the target fail, or not answer in time"),
        (Outcome.NO_ANSWER, "other programs without a verdict: the target failed or did not answer in time"),
        (Outcome.WITHHELD, "without a reward, because the program could have forged the verdict"),
        (Outcome.UNSUPPORTED, "that the target has no form for"),
    ):
        if count := card.count(outcome):
            table.add_row(str(count), text)
    console.print(table)
    if (median := card.latency(0.5)) is not None:
        console.print(Text(f"seconds for an answer: median {median:.3f}, p95 {card.latency(0.95):.3f}"))
    if card.cpu_s is not None:
        console.print(Text(f"CPU seconds, with the start of the judge: {card.cpu_s:.0f}"))
    for finding in card.findings:
        console.print(Text(f"{finding.section}: {finding.text}", style="bold red" if finding.failed else ""))
        if finding.failed:
            console.print(Text(f"  not guaranteed: {finding.invariant}"))
    for outcome in FAILED_OUTCOMES:
        _list(console, [graded for graded in card.failed if graded.outcome == outcome], outcome, command)


def _list(
    console: Console, failed: list[GradedItem], outcome: str, command: Callable[[ExamItem], str]
) -> None:
    if not failed:
        return
    console.print(Text(f"\n{outcome}: {len(failed)}", style="bold red"))
    for graded in failed[:_SHOWN]:
        console.print(Text(f"  {graded.item.id}: {graded.item.aim}"))
    if len(failed) > _SHOWN:
        console.print(Text(f"  and {len(failed) - _SHOWN} more; --json lists all"))
    for sentence in dict.fromkeys(graded.invariant for graded in failed):
        console.print(Text(f"  not guaranteed: {sentence}"))
    console.print(Text(f"  again: {command(failed[0].item)}"))


def explain_item(item: ExamItem, graded: Sequence[GradedItem]) -> None:
    """Print an item with its problem, its program and the answers."""
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
    return msgspec.json.format(msgspec.json.encode(item.problem.tests), indent=1).decode()


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip("\n").splitlines())
