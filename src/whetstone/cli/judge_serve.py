"""``whetstone judge serve``: the judge over HTTP."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

import msgspec

from whetstone.cli.judge_options import add_judge_options, judge_settings
from whetstone.errors import UserError
from whetstone.judge_service.settings import Limits, from_environment, read_tokens

if TYPE_CHECKING:
    from whetstone.judge import Judge
    from whetstone.judge_service.cluster.judge import ClusterJudge
    from whetstone.problem import Problem

_MIB = 1 << 20


def add_action(actions: Any) -> None:
    """Declare the action and its options."""
    parser = actions.add_parser(
        "serve",
        help="judge for others, over HTTP",
        description="Serve the judge over HTTP, on this machine alone unless --host says otherwise. HOST, "
        "PORT, WORKERS and MAX_MEM (KiB for one program, or unlimited) in the environment are defaults.",
        epilog="example: whetstone judge serve --host 0.0.0.0 --token-file tokens.txt",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="N", help="default: 8080; 0 takes a free one")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="0 (default): one for each core; with --ray, of each node"
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="HEAD:PORT",
        help="judge on all machines of the Ray cluster that this one is part of (default: the one it finds)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="the tokens of those who may ask, one a line; needed to listen beyond this machine",
    )
    parser.add_argument(
        "--problems",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a file of problems that SandboxFusion's dataset endpoints serve by that name; again for more",
    )
    default = Limits()
    amounts = (
        ("--max-body-mb", int, default.most_body_bytes // _MIB, "MB", "of one request"),
        ("--max-held-mb", int, default.most_held_bytes // _MIB, "MB", "of all requests together"),
        ("--max-cases", int, default.most_cases, "N", "of one problem"),
        ("--max-memory-mb", float, None, "MB", "what a program may be granted (default: any)"),
        ("--deadline", float, default.default_deadline_s, "S", "of a request that names none"),
        ("--drain", float, default.drain_s, "S", "to finish what runs, after SIGTERM"),
        ("--head-time", float, default.head_s, "S", "until the head of a request is whole"),
        ("--body-silence", float, default.body_silence_s, "S", "in the midst of a body"),
        ("--write-silence", float, default.write_silence_s, "S", "of one who reads an answer"),
    )
    for name, kind, usual, unit, says in amounts:
        shown = says if usual is None else f"{says} (default: {usual:g})"
        parser.add_argument(name, type=kind, default=usual, metavar=unit, help=shown)
    add_judge_options(parser)


def run_serve(args: argparse.Namespace) -> int:
    """Serve until told to end. Status 0 when all that had begun was finished."""
    from whetstone.judge_service.cluster.judge import ClusterJudge
    from whetstone.judge_service.serve import serve

    defaults, most_memory_mb = from_environment()
    given = {name: getattr(args, name) for name in ("host", "port", "workers")}
    address = msgspec.structs.replace(
        defaults,
        tokens=read_tokens(args.token_file) if args.token_file else (),
        **{name: value for name, value in given.items() if value is not None},
    )
    address.check()
    datasets = dict(_dataset(named) for named in args.problems)
    with _judge(args, address.workers) as judge:
        here = address.workers or len(os.sched_getaffinity(0))
        serve(
            *(address, judge, judge.workers if isinstance(judge, ClusterJudge) else here),
            _limits(args, most_memory_mb),
            environment=args.environment,
            datasets=datasets,
        )
    return 0


def _judge(args: argparse.Namespace, workers: int) -> Judge | ClusterJudge:
    settings = judge_settings(args)
    if args.ray is None:
        from whetstone.judge import Judge

        return Judge(workers, **settings)
    from whetstone.judge_service.cluster.judge import ClusterJudge
    from whetstone.judge_service.cluster.ray_fleet import RayFleet

    return ClusterJudge(RayFleet(args.ray), workers, **settings)


def _dataset(named: str) -> tuple[str, list[Problem]]:
    from whetstone.data.files import read_problems

    name, equals, file = named.partition("=")
    if not (name and equals and file):
        raise UserError(f"--problems {named}: expected NAME=FILE, such as mine=problems.jsonl")
    return name, list(read_problems(file))


def _limits(args: argparse.Namespace, most_memory_mb: float | None) -> Limits:
    default = Limits()
    return Limits(
        most_body_bytes=args.max_body_mb * _MIB,
        most_held_bytes=args.max_held_mb * _MIB,
        most_cases=args.max_cases,
        most_memory_mb=args.max_memory_mb or most_memory_mb,
        default_deadline_s=args.deadline,
        longest_deadline_s=max(default.longest_deadline_s, args.deadline),
        head_s=args.head_time,
        body_silence_s=args.body_silence,
        write_silence_s=args.write_silence,
        drain_s=args.drain,
    )
