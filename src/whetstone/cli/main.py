"""The ``whetstone`` command: one verb per job, bad input answered with the way out and status 2."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from whetstone import __version__
from whetstone.engine.threads import sleep_while_waiting
from whetstone.errors import UserError

VERBS = ("judge", "doctor", "data", "model", "train", "eval", "report")
"""Each is a module of this package with ``add_parser(subparsers)`` and ``run(args) -> int``."""

INTERRUPTED = 130

_EXTRAS = dict.fromkeys(("torch", "transformers", "safetensors", "gguf", "numpy"), "train") | {
    "httpx2": "eval"
}
"""Packages beyond the base install, and the extra that brings them."""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Importing a verb's module never imports torch; running it may."""
    parser = argparse.ArgumentParser(
        prog="whetstone",
        description="Reinforcement learning for code models, rewarded by tests you can trust.",
        epilog="Each verb teaches itself: whetstone VERB --help",
    )
    parser.add_argument("--version", action="version", version=f"whetstone {__version__}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        module = importlib.import_module(f"whetstone.cli.{verb}")
        module.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status (0 done, 2 bad input, 130 interrupted)."""
    args = _parse(argv)
    sleep_while_waiting()  # the judge's workers want the cores that torch's threads would spin on
    run: Callable[[argparse.Namespace], int] = importlib.import_module(f"whetstone.cli.{args.verb}").run
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(args)
    except UserError as error:
        print(f"whetstone: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is not None:
            print(
                f"whetstone: `whetstone {args.verb}` needs {error.name} for this; install the {extra} extra: "
                f"pip install 'whetstone-rl[{extra}]'",
                file=sys.stderr,
            )
            return 2
        raise
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        print("whetstone: interrupted", file=sys.stderr)
        return INTERRUPTED


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line, key=value words after an option included: argparse alone refuses those."""
    parser = build_parser()
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
