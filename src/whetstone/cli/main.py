"""The ``whetstone`` command: one module per verb. Invalid input ends with a message, a remedy and
status 2."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import resource
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import NoReturn

from whetstone import __version__
from whetstone.cli.parser import Parser
from whetstone.core.errors import BAD_INPUT, INTERRUPTED, UserError
from whetstone.core.optional_packages import PACKAGE_OF_COMMAND, install_command
from whetstone.core.outputs import no_room
from whetstone.engine.torch_environment import bound_kernel_caches, sleep_while_waiting

# The verbs and their descriptions. Each is a module of this package with a `command`, or with `add_parser`
# that declares several, or a command of an optional package (`PACKAGE_OF_COMMAND`).
VERBS = {
    "tour": "a demonstration in two minutes: the judge with cheating programs, and a small training run",
    "init": "write a folder to start from: a recipe, parts of your own, problems, tests",
    "judge": "run programs against the tests of problems",
    "cluster": "start and stop a Ray cluster from a host file",
    "doctor": "check this machine: isolation, languages, accelerators",
    "exam": "examine any judge with hacks and honest programs: this one, a service, or a function",
    "data": "make and inspect problem sets: prepare, validate, dedupe, decontaminate, select, convert, show",
    "train": "train a model with a recipe; the same command resumes",
    "recipes": "list the shipped recipes, benchmarks and plans",
    "role": "start one role of an asynchronous run: a flow, a rollout replica, a trainer",
    "export": "write the model of a checkpoint, or a GGUF or hub model, as a plain folder",
    "push": "send a model, a problem set or the records of a run to the Hugging Face hub",
    "eval": "measure a model or an endpoint on benchmarks or any problem file; compare two evaluations",
    "rejudge": "compute the rewards of stored replies again with today's judge: runs, dumps of TRL and verl",
    "view": "show runs, evaluations and data sets in a browser; print the state of the roles of a run",
    "report": "write one self-contained HTML page of a run, or of one evaluation or two",
    "completion": "print the script with which a shell completes commands and options",
}

# Open files that are enough for every use; the usual soft limit is 1024.
_OPEN_FILES = 65_536

# Packages beyond the base installation, and the extras that install them.
_EXTRA_OF_PACKAGE = (
    dict.fromkeys(("torch", "transformers", "safetensors", "gguf", "numpy"), "train")
    | dict.fromkeys(("starlette", "uvicorn", "prometheus_client"), "serve")
    | {"httpx2": "eval", "ray": "ray", "mcp": "mcp"}
)


class _LoadingNotice(MetaPathFinder):
    """Prints a line when torch is imported: that takes seconds, in which nothing else would be seen."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """See importlib. The module is left to the other finders."""
        if fullname == "torch":
            sys.meta_path.remove(self)
            print("loading torch", file=sys.stderr, flush=True)


def build_parser(*verbs: str) -> argparse.ArgumentParser:
    """Return the command line with the options of ``verbs`` and the names of the other verbs.

    Only the modules of these verbs are imported, to save time. No verb imports torch here; running it may.
    """
    parser = Parser(
        prog="whetstone",
        description="Reinforcement learning for code models, with rewards from tests that you can trust.",
        epilog="Options and examples of a verb: whetstone VERB --help",
    )
    parser.add_argument("--version", action="version", version=f"whetstone {__version__}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, description in VERBS.items():
        if name not in verbs:
            subparsers.add_parser(name, help=description)
        elif name in PACKAGE_OF_COMMAND:
            from whetstone.cli.package_commands import add_package_command

            add_package_command(subparsers, name)
        else:
            from whetstone.cli.flags import add_commands

            module = importlib.import_module(f"whetstone.cli.{name}")
            if hasattr(module, "add_parser"):
                module.add_parser(subparsers)
            else:
                add_commands(subparsers, module)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status (0 success, 2 invalid input, 130 interrupted)."""
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()  # later, a failure could not be reported
    except BrokenPipeError:
        return _discard_output(0)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich has caught it and ended the program
            return _discard_output(0)
        raise
    except OSError as error:
        if not no_room(error):
            raise
        where = error.filename or "standard output"
        print(f"whetstone: {where}: {error.strerror}; free some space", file=sys.stderr)
        return _discard_output(2)


def _run(argv: Sequence[str]) -> int:
    args = parse_arguments(argv)
    # Both functions set environment variables that torch reads when it is imported.
    bound_kernel_caches()
    sleep_while_waiting()  # otherwise waiting torch threads occupy the cores of the judge's workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if sys.stderr.isatty() and os.environ.get("RANK", "0") == "0":
        sys.meta_path.insert(0, _LoadingNotice())
    from whetstone.cli.flags import bound_command  # imported by every verb, but not needed for `--version`

    # Without this handler the signals would end the process without its clean-up.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, _interrupt)
    try:
        return bound_command(args)()
    except UserError as error:
        print(f"whetstone: {error}", file=sys.stderr)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        # Another missing module is a defect of Whetstone, and keeps its traceback.
        extra = _EXTRA_OF_PACKAGE.get(error.name or "")
        if extra is not None:
            print(
                f"whetstone: `whetstone {args.verb}` needs {error.name}; install the extra {extra}: "
                f"{install_command(extra)}",
                file=sys.stderr,
            )
            return BAD_INPUT
        raise
    except KeyboardInterrupt:
        print("whetstone: interrupted", file=sys.stderr)
        return INTERRUPTED


def _discard_output(status: int) -> int:
    """Redirect standard output to /dev/null, because its reader has gone, and return ``status``. Commands
    such as ``head`` close their input early and expect no error message."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
    return status


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. It may have words after options, which argparse alone rejects."""
    parser = build_parser(*[word for word in argv if not word.startswith("-")][:1])
    args, rest = parser.parse_known_args(argv)
    if rest:
        # argparse stops collecting positional words at the first option, so later ones are in `rest`.
        words = getattr(args, "words", None)
        if words is None or any(word.startswith("-") for word in rest):
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        setattr(args, words, [*getattr(args, words), *rest])
    return args


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    """End a command after a signal as after Ctrl-C, so that its processes are closed."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
