"""What a right judge guarantees, and which class of the corpus examines which guarantee."""

from __future__ import annotations

EVIDENCE = "A program is accepted only with evidence that each test was run and gave the expected value."
OUT_OF_REACH = "Expected values and their comparison are out of the program's reach."
NO_VERDICT = "A failure of the judge is no verdict, and a program cannot cause one."
NO_FLIPS = "The verdict does not depend on the load of the machine or on chance."
FINAL = "A rejection is final: no program gets another attempt, or learns which attempt it is in."
DATA = "What a program writes is data: it cannot speak for the judge."
LIMITS = "Limits hold for all processes of a program, also if the machine is busy."
LINEAR = "Reading and comparing an answer takes time in proportion to its size."
HONEST = "A right program is accepted, however it reads its input and prints its answer."
NO_TRACES = "A program leaves nothing behind for another one, and sees nothing of the host."

_CLASSES = {
    EVIDENCE: (
        "call_results",
        "early_exit",
        "problems",
        "program_checkers",
        "standard_checkers",
        "text_comparison",
        "vacuous_passes",
        "value_comparison",
    ),
    OUT_OF_REACH: (
        "argument_mutation",
        "class_design",
        "forged_equality",
        "lazy_values",
        "native_channels",
        "numpy_values",
        "patched_modules",
        "shared_interpreter",
        "shared_state",
        "stolen_answers",
        "testing_process",
    ),
    NO_VERDICT: ("blamed_machine", "checker_abuse", "process_names", "way_out"),
    FINAL: ("second_guess_interactive", "second_guesses", "telling_runs_apart"),
    DATA: ("asked_answers", "earlier_cases", "forged_channels", "interactive"),
    LIMITS: ("exhaustion", "limits", "native_exhaustion", "timing_and_signals"),
    LINEAR: ("costly_answers",),
    HONEST: ("styles",),
    NO_TRACES: ("covert_channels", "escape", "interference", "packages"),
}

_BY_CLASS = {name: sentence for sentence, names in _CLASSES.items() for name in names}


def invariant_of(class_name: str) -> str:
    """Return the guarantee that the programs of a class examine, as one sentence."""
    return _BY_CLASS[class_name]
