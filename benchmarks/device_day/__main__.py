"""Measures on a device what the CPU cannot show; see ``device_day.md``.

    python -m benchmarks.device_day                        # every section, at most 25 minutes
    python -m benchmarks.device_day --device cpu --small   # the rehearsal, at most 5 minutes

Each section runs in its own process, on a device with a time limit. What was measured is in the folder of
--out at once.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.device_day.process import run_limited
from benchmarks.device_day.results import Results
from benchmarks.device_day.sections import NAMES, SECTIONS, chosen_sections

_MINUTES, _SMALL_MINUTES = 25.0, 5.0
_MODEL = Path("models/SmolLM2-135M-Instruct")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen sections, or one of them in this process."""
    options = _parser().parse_args(arguments)
    if options.only:
        _run_one(options)
    else:
        _run_all(options, list(sys.argv[1:] if arguments is None else arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.device_day",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="auto", help="auto: the accelerator that torch sees; or cpu")
    parser.add_argument("--small", action="store_true", help="tiny models and few repetitions: a rehearsal")
    parser.add_argument("--sections", type=_names, default=NAMES, metavar="A,B", help=", ".join(NAMES[1:]))
    parser.add_argument("--minutes", type=_minutes, help="the most time (25; with --small 5)")
    parser.add_argument("--out", type=Path, default=Path("runs/device_day"), help="a new folder")
    parser.add_argument(
        "--model", type=Path, default=_MODEL, help="a trained model; random weights if absent"
    )
    parser.add_argument("--vllm", default="", help="an interpreter with vLLM, if it is not this one")
    parser.add_argument("--commit", default="", help="the commit, where there is no repository")
    parser.add_argument("--only", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown section {unknown[0]!r}; known: {', '.join(NAMES)}")
    return names


def _minutes(text: str) -> float:
    if not (minutes := float(text)) > 0:
        raise argparse.ArgumentTypeError("give a positive number of minutes")
    return minutes


def _run_all(options: argparse.Namespace, arguments: list[str]) -> None:
    """Run each chosen section in its own process, as long as there is time for its limit."""
    results = Results(options.out)
    if results.lines.exists():
        sys.exit(f"{results.lines} has the figures of another run; give a new folder with --out")
    options.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * (options.minutes or (_SMALL_MINUTES if options.small else _MINUTES))
    with tempfile.TemporaryDirectory(prefix="device-day-") as scratch:
        for section in chosen_sections(options.sections):
            left = max(0.0, until - time.monotonic())
            limit = left if options.small else section.limit_s
            if not left or left < limit:
                reason = f"left out: {left:.0f} s were left, and its limit is {section.limit_s} s"
                results.add(section.name, "end", outcome=reason)
            else:
                command = [sys.executable, "-m", "benchmarks.device_day", *arguments]
                command += ["--only", section.name, "--scratch", scratch]
                ended = run_limited(command, limit, options.out / "device_day.log")
                reason = ended.reason or "complete"
                results.add(section.name, "end", outcome=reason, seconds=round(ended.seconds, 1))
            print(f"{section.name}: {reason}", flush=True)
    print(f"figures: {results.page}")


def _run_one(options: argparse.Namespace) -> None:
    """Run a section in this process."""
    from benchmarks.device_day.context import SectionContext
    from whetstone.engine.device import pick_device
    from whetstone.engine.memory import keep_freed_memory

    keep_freed_memory()
    [section] = [section for section in SECTIONS if section.name == options.only]
    module, _, function = section.function.partition(":")
    context = SectionContext(
        section=section.name,
        device=pick_device(options.device),
        small=options.small,
        model=options.model if options.model.is_dir() and not options.small else None,
        vllm=options.vllm or (sys.executable if find_spec("vllm") else ""),
        scratch=options.scratch,
        commit=options.commit or _commit(),
        results=Results(options.out),
    )
    getattr(importlib.import_module(f"benchmarks.device_day.{module}"), function)(context)


def _commit() -> str:
    """Return the commit of the working directory, marked if files differ from it; "unknown" without git."""
    try:
        [commit, changes] = [
            subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}, with changes" if changes else commit


if __name__ == "__main__":
    main()
