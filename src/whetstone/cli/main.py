"""The ``whetstone`` command: one verb per job, bad input answered with the way out and status 2."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from whetstone import __version__
from whetstone.engine.torch_environment import bound_kernel_caches, sleep_while_waiting
from whetstone.errors import BAD_INPUT, INTERRUPTED, UserError
from whetstone.outputs import no_room

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

VERBS = {
    "tour": "two minutes: cheating programs before the judge, and a tiny model that learns",
    "judge": "run programs against the tests of problems and say what is right",
    "cluster": "start, extend and stop a Ray cluster out of a host file",
    "doctor": "what this machine can do: isolation, languages, accelerators",
    "data": "problem sets: prepare, validate, dedupe, decontaminate, select, convert, show",
    "model": "convert a model to a plain folder",
    "train": "train a model by a recipe; the same command again resumes it",
    "recipes": "the recipes that ship, by name",
    "role": "start one role of an asynchronous run: a flow, a rollout replica, a trainer",
    "status": "what the roles of a run do, and what they wait for",
    "export": "write the model of a run's checkpoint as a plain folder that transformers and vLLM load",
    "eval": "measure a model or an endpoint on benchmarks or any problem file; compare two measurements",
    "view": "look at runs, evaluations and data sets in a browser, live while they are written",
    "report": "write one self-contained HTML page of a run: result, curves, rollouts",
}
"""What each does. It is a module of this package with ``add_parser(subparsers)`` and ``run(args) -> int``."""

_EXTRAS = (
    dict.fromkeys(("torch", "transformers", "safetensors", "gguf", "numpy"), "train")
    | dict.fromkeys(("starlette", "uvicorn", "prometheus_client"), "serve")
    | {"httpx2": "eval", "ray": "ray"}
)
"""Packages beyond the base install, and the extra that brings them."""


class _Parser(argparse.ArgumentParser):
    """A parser whose help must arrive: argparse lets a failed write pass, and ends with status 0."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if file is sys.stdout:
            sys.stdout.write(message)
        else:
            super()._print_message(message, file)


def build_parser(verb: str | None) -> argparse.ArgumentParser:
    """The command line with the options of ``verb`` and the names of the others.

    Only the module of that verb is imported: nobody waits for the others. None of them imports torch, though
    running it may.
    """
    parser = _Parser(
        prog="whetstone",
        description="Reinforcement learning for code models, rewarded by tests you can trust.",
        epilog="Each verb teaches itself: whetstone VERB --help",
    )
    parser.add_argument("--version", action="version", version=f"whetstone {__version__}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, does in VERBS.items():
        if name == verb:
            importlib.import_module(f"whetstone.cli.{name}").add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=does)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status (0 done, 2 bad input, 130 interrupted)."""
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()  # what fails here would else fail when nobody can say why
    except BrokenPipeError:
        return _without_reader(0)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich has met it, and ended the program
            return _without_reader(0)
        raise
    except OSError as error:
        if not no_room(error):
            raise
        where = error.filename or "standard output"
        print(f"whetstone: {where}: {error.strerror}; free some space", file=sys.stderr)
        return _without_reader(2)


def _run(argv: Sequence[str]) -> int:
    args = _parse(argv)
    bound_kernel_caches()
    sleep_while_waiting()  # the judge's workers want the cores that torch's threads would spin on
    run: Callable[[argparse.Namespace], int] = importlib.import_module(f"whetstone.cli.{args.verb}").run
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(args)
    except UserError as error:
        print(f"whetstone: {error}", file=sys.stderr)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is not None:
            print(
                f"whetstone: `whetstone {args.verb}` needs {error.name} for this; install the {extra} extra: "
                f"pip install 'whetstone-rl[{extra}]'",
                file=sys.stderr,
            )
            return BAD_INPUT
        raise
    except KeyboardInterrupt:
        print("whetstone: interrupted", file=sys.stderr)
        return INTERRUPTED


def _without_reader(status: int) -> int:
    """The status of a command whose output nobody takes any more: what is left of it is dropped quietly, as
    ``head`` expects of whoever writes to it."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return status


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line, key=value words after an option included: argparse alone refuses those."""
    parser = build_parser(next((word for word in argv if not word.startswith("-")), None))
    args, rest = parser.parse_known_args(argv)
    if rest:
        if not hasattr(args, "overrides") or any(word.startswith("-") for word in rest):
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        args.overrides += rest
    return args


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends a command the way Ctrl-C does, so that its processes are closed."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
