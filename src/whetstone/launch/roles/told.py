"""What a run's folder says of its roles: where the flow is, what they said."""

from __future__ import annotations

from pathlib import Path

from whetstone.outputs import write_file

LOGS = "logs"
"""The folder of what the roles said."""
_FLOW_FILE = "flow-url"


def write_flow_url(run: Path, url: str) -> None:
    """Write down where the flow of this run is, for ``whetstone status``."""
    write_file(run / _FLOW_FILE, [f"{url}\n".encode()])


def flow_url_of(run: Path) -> str | None:
    """Where the flow of a run was last; None where it was never."""
    try:
        return (run / _FLOW_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return None
