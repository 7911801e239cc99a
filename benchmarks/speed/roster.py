"""Who takes part: which class drives it, under which interpreter, and which paths it needs.

Standard library only: the interpreters of all contestants read this.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A contestant. ``needs`` and ``interpreter`` name options of ``judge_speed.py`` that hold paths."""

    label: str
    module: str
    kind: str
    interpreter: str = "python"
    flags: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    isolated: str = "no"


_ALL = "namespaces, Landlock, seccomp, limits"
_PLAIN = ("python",)

ROSTER: dict[str, Entry] = {
    "empty": Entry(
        "floor: fork of the preloaded zygote, empty child", "floor", "EmptyFork", "base", ("-I", "-S")
    ),
    "floor": Entry("floor: fork, compile, exec in the zygote", "floor", "ProgramFork", "base", ("-I", "-S")),
    "whetstone": Entry("**Whetstone**, a fork per case", "own", "Whetstone", "own", isolated=_ALL),
    "sequence": Entry(
        "**Whetstone**, cases in sequence in one process", "own", "InSequence", "own", isolated=_ALL
    ),
    "python-sei": Entry("`python -S -E -I`", "commands", "BarePython", needs=_PLAIN),
    "python": Entry("`python`", "commands", "PlainPython", needs=_PLAIN),
    "bwrap": Entry(
        "bwrap `--unshare-all`, `python -S -E -I`",
        "commands",
        "Bubblewrap",
        needs=("python", "bwrap"),
        isolated="namespaces",
    ),
    "nsjail": Entry(
        "nsjail, `python -S -E -I`",
        "commands",
        "Nsjail",
        needs=("python", "nsjail"),
        isolated="namespaces, seccomp, limits",
    ),
    "firejail": Entry(
        "firejail, Code-R1's flags, `python`",
        "commands",
        "Firejail",
        needs=("python", "firejail"),
        isolated="partly: network and host files readable",
    ),
    "prime-alone": Entry(
        "`prime_code`, its module alone", "rivals", "PrimeCodeAlone", "rivals_python", needs=("verl",)
    ),
    "prime": Entry(
        "verl's `prime_code`, imported through verl", "rivals", "PrimeCode", "verl_python", needs=("verl",)
    ),
    "verl-fusion": Entry(
        "verl's `sandbox_fusion` client, SandboxFusion's server on loopback",
        "rivals",
        "VerlSandboxFusion",
        "rivals_python",
        needs=("verl", "sandbox_fusion"),
    ),
    "fusion": Entry(
        "SandboxFusion's `run_code` handler",
        "rivals",
        "SandboxFusion",
        "rivals_python",
        needs=("sandbox_fusion",),
    ),
    "scalebox": Entry(
        "ScaleBox's `common_evaluate_batch` handler",
        "rivals",
        "ScaleBox",
        "rivals_python",
        needs=("scalebox",),
    ),
}
