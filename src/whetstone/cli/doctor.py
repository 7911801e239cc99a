"""``whetstone doctor``: report what works on this machine, what is missing, and the remedy."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from whetstone.cli.flags import command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.optional_packages import load_part

if TYPE_CHECKING:
    from whetstone.cli.doctor_survey import Survey


class _Examination(Struct, frozen=True, kw_only=True):
    """What is examined: by default the essential probes."""

    json: Annotated[bool, Flag("print the findings as JSON")] = False
    full: Annotated[
        bool,
        Flag("run every probe: also exceed each limit, judge a program in every language, and import torch"),
    ] = False
    attack: Annotated[
        bool,
        Flag(
            "run the attack suite instead of probes: programs that try to get accepted without a "
            "solution, and their honest twins (about a minute on two cores)"
        ),
    ] = False
    environment: Annotated[
        str | None,
        Flag(
            "with --attack: the environment, and so the Python, of the programs. It needs numpy (see: "
            "whetstone judge environment --help)",
            "NAME",
        ),
    ] = None
    stress: Annotated[
        int | None,
        Flag(
            "judge N programs with known verdicts instead of probes (correct, wrong, crashing, endless, "
            "wasteful), on four workers per core; every verdict must be correct, and nothing may be left "
            "over",
            "N",
        ),
    ] = None
    fuzz: Annotated[
        float | None,
        Flag(
            "with --attack: run random hostile programs for this time instead of the suite. The processes "
            "that judge them must not crash, hang, reveal secrets or accept",
            "SECONDS",
        ),
    ] = None
    seed: Annotated[
        int | None, Flag("with --fuzz: seed of the first session, to reproduce a finding", "SEED")
    ] = None


@command(
    "doctor",
    description="Report what works on this machine, what is missing, and the remedy. The command "
    "starts each isolation tier, attacks the strongest one, and judges a correct, a wrong "
    "and a cheating program. Exit status 1 means that programs cannot be judged safely "
    "here.",
    epilog="examples: whetstone doctor --full; whetstone doctor --attack --fuzz 600; "
    "whetstone doctor --stress 1000",
)
def examine_machine(args: _Examination) -> int:
    """Run the verb. Returns 0 if programs can be judged here, otherwise 1."""
    if args.full + args.attack + (args.stress is not None) > 1:
        raise UserError("--full, --attack and --stress exclude each other; give one of them")
    if args.environment is not None and (not args.attack or args.fuzz is not None):
        raise UserError("`--environment` belongs to `--attack`: whetstone doctor --attack --environment NAME")
    # Each mode imports what it needs. The default mode takes about a second.
    if args.fuzz is not None:
        if not args.attack:
            raise UserError("`--fuzz` belongs to `--attack`: whetstone doctor --attack --fuzz SECONDS")
        return _mode_of_exam("fuzz")(args.fuzz, args.seed, as_json=args.json)
    if args.attack:
        from whetstone.cli.doctor_attack import run_attacks

        return run_attacks(environment=args.environment, as_json=args.json)
    if args.stress is not None:
        return _mode_of_exam("stress")(args.stress, as_json=args.json)
    from whetstone.cli.doctor_page import page
    from whetstone.cli.doctor_survey import examine, examine_fully

    survey = examine_fully() if args.full else examine()
    print(json.dumps(_report(survey), indent=2) if args.json else "\n".join(page(survey)))
    return 0 if survey.safe else 1


def _mode_of_exam(name: str) -> Callable[..., int]:
    """Return the function of an option that needs the package of the exam. Raises UserError without it."""
    return load_part(
        "whetstone.doctor", name, subject=f"`whetstone doctor --{name}`", package="whetstone-exam"
    )


def _report(survey: Survey) -> dict[str, Any]:
    """Return a survey as JSON values."""
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
