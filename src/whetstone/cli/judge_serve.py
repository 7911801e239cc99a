"""``whetstone judge serve``: serve the judge over HTTP."""

from __future__ import annotations

import os
from typing import Annotated, Any

from msgspec import Struct, structs

from whetstone.cli.flags import command
from whetstone.cli.judge_options import Isolation, Processes
from whetstone.core.flag import Flag
from whetstone.core.http.settings import read_tokens
from whetstone.core.optional_packages import installed_comparisons
from whetstone.service.settings import ServiceLimits, from_environment

_MIB = 1 << 20


_DEFAULTS = ServiceLimits()


class _ServiceFlags(Struct, frozen=True, kw_only=True):
    """The address of the service, its workers, and its limits."""

    host: Annotated[str | None, Flag("the address to listen on (default: 127.0.0.1)", "ADDRESS")] = None
    port: Annotated[int | None, Flag("0: any free port (default: 8080)", "N")] = None
    workers: Annotated[
        int | None, Flag("0 (default): one per core; with --ray: one per core of each node", "N")
    ] = None
    ray: Annotated[
        str | None,
        Flag(
            "judge on all machines of the Ray cluster of this machine (default: the cluster found here)",
            "HEAD:PORT",
            bare="auto",
        ),
    ] = None
    token_file: Annotated[
        str | None, Flag("the tokens of clients, one per line; needed to accept other machines", "FILE")
    ] = None
    max_body_mb: Annotated[int, Flag("the largest request", "MB")] = _DEFAULTS.most_body_bytes // _MIB
    max_held_mb: Annotated[int, Flag("the largest sum of all present requests", "MB")] = (
        _DEFAULTS.most_held_bytes // _MIB
    )
    max_cases: Annotated[int, Flag("the most cases of one problem", "N")] = _DEFAULTS.most_cases
    max_memory_mb: Annotated[
        float | None, Flag("the largest permitted memory limit of a program (default: no maximum)", "MB")
    ] = None
    deadline: Annotated[float, Flag("deadline of a request without its own", "S")] = (
        _DEFAULTS.default_deadline_s
    )
    drain: Annotated[float, Flag("time for running requests after SIGTERM", "S")] = _DEFAULTS.drain_s
    head_time: Annotated[float, Flag("the longest time for the head of a request", "S")] = _DEFAULTS.head_s
    body_silence: Annotated[float, Flag("idle timeout in the body of a request", "S")] = (
        _DEFAULTS.body_silence_s
    )
    write_silence: Annotated[float, Flag("idle timeout of a client that reads a response", "S")] = (
        _DEFAULTS.write_silence_s
    )

    def limits(self, most_memory_mb: float | None) -> ServiceLimits:
        """Return the limits. ``most_memory_mb`` comes from the environment variables."""
        return ServiceLimits(
            most_body_bytes=self.max_body_mb * _MIB,
            most_held_bytes=self.max_held_mb * _MIB,
            most_cases=self.max_cases,
            most_memory_mb=self.max_memory_mb or most_memory_mb,
            default_deadline_s=self.deadline,
            longest_deadline_s=max(_DEFAULTS.longest_deadline_s, self.deadline),
            head_s=self.head_time,
            body_silence_s=self.body_silence,
            write_silence_s=self.write_silence,
            drain_s=self.drain,
        )


@command(
    "serve",
    help="serve the judge over HTTP",
    description="Serve the judge over HTTP, by default to this machine only (see --host). The "
    "environment variables HOST, PORT, WORKERS and MAX_MEM (KiB per program, or unlimited) "
    "set the defaults.",
    epilog="example: whetstone judge serve --host 0.0.0.0 --token-file tokens.txt",
)
def run_serve(flags: _ServiceFlags, isolation: Isolation, processes: Processes) -> int:
    """Serve until a signal ends it. Returns 0 if all running requests were finished."""
    from whetstone.service.serve import serve

    # Flags override the environment variables, which containers use.
    defaults, most_memory_mb = from_environment()
    address_flags = {
        name: value for name in ("host", "port", "workers") if (value := getattr(flags, name)) is not None
    }
    tokens = read_tokens(flags.token_file) if flags.token_file else ()
    address = structs.replace(defaults, tokens=tokens, **address_flags)
    address.check()
    limits = flags.limits(most_memory_mb)
    settings: dict[str, Any] = {
        **structs.asdict(isolation),
        **structs.asdict(processes),
        "comparisons": installed_comparisons(),
    }
    if flags.ray is not None:
        from whetstone.service.ray_servers import RayServers

        with RayServers(flags.ray, address.workers, settings, limits) as servers:
            serve(address, servers.judge, servers.workers, limits, nodes=servers.states)
        return 0
    from whetstone.judge import Judge

    with Judge(address.workers, **settings) as judge:
        workers = address.workers or len(os.sched_getaffinity(0))
        serve(address, judge, workers, limits)
    return 0
