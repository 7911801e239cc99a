"""``whetstone exam``: examine a judge with hacks and honest programs."""

from __future__ import annotations

import json
import os
import resource
import shlex
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from whetstone.cli.flags import add_command
from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.flag import Flag
from whetstone.core.outputs import check_outputs, replacing
from whetstone.core.progress import Progress
from whetstone.judge import Judge
from whetstone.testing.attacks.corpus import load_corpus
from whetstone_exam.exam.callable_target import CallableTarget
from whetstone_exam.exam.grading import run_exam
from whetstone_exam.exam.http_target import PROTOCOLS, HttpTarget
from whetstone_exam.exam.items import ExamItem, exam_items, sample_items
from whetstone_exam.exam.limits import limit_items
from whetstone_exam.exam.scorecard import Scorecard, figures
from whetstone_exam.exam.sections import SectionFinding, run_section
from whetstone_exam.exam.styles import style_items
from whetstone_exam.exam.targets import ExamTarget, JudgeTarget
from whetstone_exam.exam.text import explain_item, print_scorecard
from whetstone_exam.exam.wrong_programs import wrong_programs

_SELF = "self"
_PROGRAMS = "programs"
# All kinds except programs are the sections of whetstone_exam.exam.sections.
_SECTIONS = (_PROGRAMS, "attempts", "leaks", "overload", "failures")


class _Exam(Struct, frozen=True, kw_only=True):
    """The judge to examine, and the items."""

    target: Annotated[
        str,
        Flag(
            "self: this judge; http://…: a service; sandboxfusion+http://… or scalebox+http://…: a service "
            "of another project; or module:function(problem, program) -> bool or float",
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
    sections: Annotated[str, Flag(f"what to examine, of {','.join(_SECTIONS)} (default: all)", "A,B")] = (
        ",".join(_SECTIONS)
    )
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
    replace: Annotated[bool, Flag("replace an existing output")] = False


def add_exam(subparsers: Any) -> None:
    """Declare ``whetstone exam``."""
    add_command(
        subparsers,
        "exam",
        exam,
        help="examine a judge: hacks must be rejected, honest programs accepted",
        description="Judge programs with TARGET: hacks of the attack corpus, honest programs with the same "
        "features, reference solutions, and wrong programs. Further sections look for leaks, overload the "
        "target, and cause failures of its machine. A function runs in a process of its own, which cannot "
        "write files, use the network or outlive the exam. The exit status is 0 if nothing failed, else 1.",
        epilog="examples: whetstone exam self; whetstone exam http://127.0.0.1:8080 --items 100; whetstone "
        "exam "
        "my_grader:grade --json score.json; whetstone exam my_grader:grade --item 'hack/early_exit/ID'",
    )


def exam(options: _Exam) -> int:
    """Run the command. Returns 1 if an item or a section failed."""
    sections = _sections(options)
    check_outputs(options.json, replace=options.replace)
    target = _target(options)
    try:
        corpus = load_corpus()
        items = [*exam_items(corpus), *limit_items(), *style_items()]
        # Selecting wrong programs takes seconds, so one other item is examined without them.
        if options.mutants and (options.item is None or options.item.startswith("wrong/")):
            items += wrong_programs(corpus.problems, options.mutants, options.seed)
        if options.list_:
            print("\n".join(item.id for item in items))
            return 0
        chosen = (
            [_item(items, options.item)] if options.item else sample_items(items, options.items, options.seed)
        )
        card = _examine(options, target, chosen if _PROGRAMS in sections else [], sections, items)
    finally:
        target.close()
    if options.json:
        with replacing(options.json) as temporary:
            temporary.write_text(json.dumps(figures(card), indent=1) + "\n", encoding="utf-8")
    if options.item:
        explain_item(chosen[0], card.items)
    else:
        print_scorecard(card, lambda item: _command(item, options))
    return 0 if card.passed else 1


def _examine(
    options: _Exam,
    target: ExamTarget,
    chosen: Sequence[ExamItem],
    sections: Sequence[str],
    items: Sequence[ExamItem],
) -> Scorecard:
    """Judge the chosen items, close the target, and run the other sections."""
    cpu, began = _cpu_of_children(), time.monotonic()
    with Progress() as progress:
        try:
            with progress.work("examining", len(chosen) * options.rounds) as work:
                graded = run_exam(target, chosen, options.rounds, work.advance)
        finally:
            target.close()
        # The processes of a function are killed in their namespace, so the kernel reports no time of them.
        cpu_s = round(_cpu_of_children() - cpu, 1) if options.target == _SELF else None
        seconds = time.monotonic() - began
        findings: list[SectionFinding] = []
        for name in sections:
            if name != _PROGRAMS:
                with progress.work(f"examining: {name}", None) as work:
                    findings += run_section(
                        name, lambda failure: _target_with(failure, options), items, work.advance
                    )
    return Scorecard(target.name, target.protection, options.rounds, seconds, cpu_s, graded, findings)


def _sections(options: _Exam) -> list[str]:
    names = options.sections.split(",")
    for name in names:
        if name not in _SECTIONS:
            known = ", ".join(_SECTIONS)
            raise UserError(f"--sections: no section {name!r}{did_you_mean(name, _SECTIONS)}; known: {known}")
    return [_PROGRAMS] if options.item else [name for name in _SECTIONS if name in names]


def _cpu_of_children() -> float:
    """Return the CPU seconds of processes that have ended, with those below them."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _item(items: list[ExamItem], name: str) -> ExamItem:
    by_id = {item.id: item for item in items}
    if name not in by_id:
        raise UserError(f"--item: no item {name!r}{did_you_mean(name, by_id)}; --list prints all")
    return by_id[name]


def _target_with(failure: str, options: _Exam) -> ExamTarget | None:
    """Start the target on a machine with a failure; None if its machine is another one.

    This judge then runs in a process of its own, which the failure may harm.
    """
    if not failure:
        return _target(options)
    if _is_address(options.target):
        return None
    own = options.target == _SELF
    # One process: the failure begins after its first answer.
    return CallableTarget(
        f"whetstone_exam.exam.targets:{options.tier or 'strongest'}" if own else options.target,
        python=options.python,
        timeout_s=options.timeout,
        unprotected=own or options.unprotected,
        failure=failure,
    )


def _is_address(target: str) -> bool:
    return "://" in target


def _target(options: _Exam) -> ExamTarget:
    cores = len(os.sched_getaffinity(0))
    if options.target == _SELF:
        # Some programs wait for their whole time limit, so more workers than cores have work.
        judge = Judge(options.workers or 4 * cores, tier=options.tier)
        return JudgeTarget(f"whetstone, isolation {judge.isolation}", judge)
    if options.tier is not None:
        raise UserError("--tier chooses the isolation of `self`; leave it out for other targets")
    if _is_address(options.target):
        return _service(options.target, options.workers or 4 * cores, options.timeout)
    module, colon, name = options.target.partition(":")
    if not (module and colon and name):
        raise UserError(
            f"TARGET is {options.target!r}; give `self`, the http:// address of a service, or module:function"
        )
    return CallableTarget(
        options.target,
        python=options.python,
        workers=options.workers or cores,
        timeout_s=options.timeout,
        unprotected=options.unprotected,
    )


def _service(address: str, workers: int, timeout_s: float) -> ExamTarget:
    """Return a service; the protocol of another project stands before the address, as ``scalebox+http``."""
    if address.startswith(("http://", "https://")):
        from whetstone.service.client import JudgeClient  # needs an HTTP client

        return JudgeTarget(address, JudgeClient(address))
    protocol, plus, url = address.partition("+")
    if not plus or protocol not in PROTOCOLS or not url.startswith(("http://", "https://")):
        known = ", ".join(f"{name}+http://HOST:PORT" for name in PROTOCOLS)
        raise UserError(f"TARGET is {address!r}; the addresses of services are http://HOST:PORT, {known}")
    return HttpTarget(address, url, PROTOCOLS[protocol], workers, timeout_s)


def _command(item: ExamItem, options: _Exam) -> str:
    words = ["whetstone", "exam", options.target, "--item", item.id]
    words += ["--tier", options.tier] if options.tier else []
    words += ["--python", options.python] if options.python else []
    words += ["--unprotected"] if options.unprotected else []
    words += ["--seed", str(options.seed)] if item.kind == "wrong" and options.seed else []
    words += ["--rounds", str(options.rounds)] if options.rounds > 1 else []
    return shlex.join(words)
