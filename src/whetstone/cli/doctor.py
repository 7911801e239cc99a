"""``whetstone doctor``: what works on this machine, what is missing, and the remedy."""

from __future__ import annotations

import argparse
import json
import os
import platform
from typing import TYPE_CHECKING, Any

from whetstone.errors import UserError

if TYPE_CHECKING:
    from whetstone.cli.doctor_survey import Survey


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "doctor",
        description="Report what works on this machine, what is missing, and the remedy. It starts each tier "
        "of isolation, attacks the strongest, and judges a right, a wrong and a cheating program. Status 1 "
        "when programs cannot be judged safely here.",
        epilog="examples: whetstone doctor --full; whetstone doctor --attack --fuzz 600; "
        "whetstone doctor --stress 1000",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--full",
        action="store_true",
        help="run every probe: also exceed each limit, judge a program in every language, and import torch",
    )
    instead.add_argument(
        "--attack",
        action="store_true",
        help="instead of probes, run the attack suite: every program that wants to be accepted without "
        "solving its problem, and its honest twin (about a minute on two cores)",
    )
    instead.add_argument(
        "--stress",
        type=int,
        metavar="N",
        help="instead of probes, judge N programs of known verdict (right, wrong, crashing, endless, "
        "greedy) on four workers for each core: every verdict must be as known, and nothing may be left over",
    )

    parser.add_argument(
        "--fuzz",
        type=float,
        metavar="SECONDS",
        help="with --attack: for so long, programs drawn at random in place of those of the suite; whatever "
        "they say to the processes that judge them, these must neither die, nor hang, nor tell, nor accept",
    )
    parser.add_argument("--seed", type=int, help="with --fuzz: of the first session, to see it again")


def run(args: argparse.Namespace) -> int:
    """Run the verb. Status 0 when programs can be judged here, 1 when not."""
    # Each mode imports what it needs: the default one takes about a second.
    if args.fuzz is not None:
        if not args.attack:
            raise UserError("`--fuzz` belongs to `--attack`: whetstone doctor --attack --fuzz SECONDS")
        from whetstone.cli.doctor_fuzz import run_fuzz

        return run_fuzz(args.fuzz, args.seed, as_json=args.json)
    if args.attack:
        from whetstone.cli.doctor_attack import run_attacks

        return run_attacks(as_json=args.json)
    if args.stress is not None:
        from whetstone.cli.doctor_stress import run_stress

        return run_stress(args.stress, as_json=args.json)
    from whetstone.cli.doctor_page import page
    from whetstone.cli.doctor_survey import examine, examine_fully

    survey = examine_fully() if args.full else examine()
    print(json.dumps(_report(survey), indent=2) if args.json else "\n".join(page(survey)))
    return 0 if survey.safe else 1


def _report(survey: Survey) -> dict[str, Any]:
    """A survey as JSON."""
    return {
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "full": survey.full,
        "languages": [
            {"name": found.language, "available": found.available, "detail": found.detail}
            for found in survey.languages
        ],
        "environments": [{"label": found.label, "packages": found.versions} for found in survey.environments],
        "missing": survey.missing,
        "torch": survey.accelerators.torch,
        "accelerators": survey.accelerators.devices,
        "accelerator_fault": survey.accelerators.fault,
        "bf16": survey.bf16,
        "probes": [{"name": found.name, "ok": found.ok, "detail": found.detail} for found in survey.probes],
        "safe": survey.safe,
    }
