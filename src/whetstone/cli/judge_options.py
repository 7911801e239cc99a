"""How programs are judged, as settings that several commands share.

The settings are msgspec structs, so that ``judge one`` starts without the import of pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta, Struct, structs

from whetstone.core.flag import Flag
from whetstone.core.optional_packages import installed_comparisons

if TYPE_CHECKING:
    from whetstone.judge import Judge


ForkPerCase = Annotated[
    bool,
    Flag(
        "run each case of a Python program in its own process (default); without it, judging is cheaper and "
        "less strict, and the judgement says so"
    ),
]


class Isolation(Struct, frozen=True, kw_only=True):
    """The isolation of programs, and their packages."""

    TITLE: ClassVar[str] = "judge"

    minimum_tier: Annotated[
        Literal["restricted", "userns", "root"],
        Flag("refuse to run with weaker isolation than this (see: whetstone doctor)"),
    ] = "restricted"
    environment: Annotated[
        str,
        Flag(
            "the packages that programs may import: an environment's name, or the folder of a virtual "
            "environment (see: whetstone judge environment --help)",
            "NAME",
        ),
    ] = ""


class Machine(Isolation, frozen=True, kw_only=True):
    """The workers of the judge, and their isolation."""

    TITLE: ClassVar[str] = "machine"

    workers: Annotated[int, Meta(ge=0), Flag("workers of the judge; 0 (default): one for each core", "N")] = 0


class JudgeMachine(Machine, frozen=True, kw_only=True):
    """The judge of a command."""

    fork_per_case: ForkPerCase = True

    def judge(self) -> Judge:
        """Return the judge, with the comparisons of published graders."""
        from whetstone.judge import Judge

        return Judge(**structs.asdict(self), comparisons=installed_comparisons())


class Processes(Struct, frozen=True, kw_only=True):
    """The processes that run the cases."""

    fork_per_case: ForkPerCase = True


class CaseFlags(Processes, frozen=True, kw_only=True):
    """The cases of a problem to judge, and the processes for them."""

    stop_at_first_failure: Annotated[bool, Flag("run no further case after a failed one")] = False
    max_cases: Annotated[Annotated[int, Meta(ge=1)] | None, Flag("judge N cases, chosen by a seed", "N")] = (
        None
    )
    subset_seed: Annotated[int, Flag("seed of the choice", "SEED")] = 0


class ProgramFiles(Struct, frozen=True, kw_only=True):
    """Files of problems and programs, and the workers that judge them."""

    problems: Annotated[str, Flag("problems: .jsonl, .jsonl.gz, .parquet", "FILE")]
    programs: Annotated[str, Flag("programs, as JSON lines", "FILE")]
    out: Annotated[
        str | None,
        Flag(
            "the file for the judgements, complete at the end (default: standard output, one by one)",
            "FILE",
        ),
    ] = None
    replace: Annotated[bool, Flag("replace an existing output")] = False
    workers: Annotated[int, Meta(ge=0), Flag("0 (default): one for each core", "N")] = 0


class OneProgram(Struct, frozen=True, kw_only=True):
    """A problem and a program."""

    problem: Annotated[str, Flag("a problem in the published schema", "PROBLEM.json", positional=True)]
    program: Annotated[str, Flag("the program's source; - reads standard input", "PROGRAM", positional=True)]
    language: Annotated[
        str | None,
        Flag(
            "the program's language (default: by the ending of the file; for standard input that of the "
            "problem)",
            "NAME",
        ),
    ] = None
    json: Annotated[
        bool, Flag("print the judgement as one JSON object, in which the index of the first case is 0")
    ] = False


def judge_of(isolation: Isolation, cases: CaseFlags, workers: int) -> Judge:
    """Return the judge for these options, including the choice of cases."""
    from whetstone.judge import Judge

    options = {
        "minimum_tier": isolation.minimum_tier,
        "environment": isolation.environment,
        **structs.asdict(cases),
    }
    return Judge(workers, **options, comparisons=installed_comparisons())
