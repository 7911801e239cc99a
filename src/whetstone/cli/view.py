"""``whetstone view``: serve a local page of runs, evaluations and data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Struct

from whetstone.cli.flags import command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag


class _Viewing(Struct, frozen=True, kw_only=True):
    """The folders to show, and the address of the page."""

    folders: Annotated[
        tuple[str, ...],
        Flag("a run, an evaluation, or a folder of them (default: runs)", "FOLDER", positional=True),
    ] = ()
    text: Annotated[
        bool,
        Flag(
            "print for each role of a run what it waits for, since when, its prompts and its weights, and "
            "stop; the token of the flow is in WHETSTONE_FLOW_TOKEN"
        ),
    ] = False
    flow: Annotated[
        str | None, Flag("with --text: the flow of the run (default: its last known address)", "URL")
    ] = None
    host: Annotated[str, Flag("the address to listen on", "ADDRESS")] = "127.0.0.1"
    port: Annotated[int, Flag("0: any free port (default: 8070)", "N")] = 8070
    token_file: Annotated[
        str | None,
        Flag(
            "the tokens of readers, one per line; needed to accept other machines. A browser requests one as "
            "the password of any user",
            "FILE",
        ),
    ] = None


@command(
    "view",
    description="Serve a page of the runs, evaluations and data sets in folders, by default to this "
    "machine only (see --host). It is updated while they are written, and shows curves, "
    "verdicts, every rollout and reply, and what each role of a run waits for. The command "
    "changes no file.",
    epilog="examples: whetstone view runs; whetstone view runs/async-quickstart --text",
)
def view(args: _Viewing) -> int:
    """Serve until a signal ends it, or print the state of the roles of a run."""
    if args.text:
        from whetstone.run.roles.status import status_lines

        if len(args.folders) != 1:
            raise UserError("--text is for one run: whetstone view RUN --text")
        print(*status_lines(Path(args.folders[0]), args.flow), sep="\n")
        return 0
    # Imported here: `view --text` needs no web server.
    from whetstone.core.addresses import host_port
    from whetstone.core.http.settings import Address, read_tokens
    from whetstone.report.view.app import serve_view

    tokens = read_tokens(args.token_file) if args.token_file else ()
    serve_view(
        Address(args.host, args.port, tokens=tokens),
        [Path(folder) for folder in args.folders or ["runs"]],
        _role_lines,
        on_listening=lambda host, port: print(f"http://{host_port(host, port)}/", flush=True),
    )
    return 0


def _role_lines(run: Path) -> list[str]:
    """Return a line for each role of a run; none for a run without a flow, which is one process."""
    from whetstone.run.roles.status import role_lines
    from whetstone.run.run_dir import flow_url_of

    return [] if flow_url_of(run) is None else role_lines(run, None)
