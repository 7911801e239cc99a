"""A node's side of a role that was placed there: it starts the role's process, and hands on what that says.

An actor on a Ray cluster is made of this class; it knows nothing of Ray.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from whetstone import __version__
from whetstone.launch.roles.process import Local, role_command, start_local
from whetstone.outputs import write_file


class Placed(Struct, frozen=True):
    """What is to run: ``whetstone role ROLE``, with these words after the recipe.

    folder: where it works, for what the recipe names by relative paths. variables: of its environment.
    version: of the Whetstone that asks.
    """

    role: str
    words: list[str]
    recipe: str
    folder: str
    variables: dict[str, str]
    version: str = __version__


class RoleHost:
    """One role on this node. Its process ends with this one, however that ends."""

    def __init__(self, setup: bytes) -> None:
        self._placed = msgspec.msgpack.decode(setup, type=Placed)
        self._temporary = TemporaryDirectory(prefix="whetstone-")
        self._process: Local | None = None

    async def start(self) -> str:
        """Start it. Empty, or why it cannot be started here."""
        placed = self._placed
        if why := _obstacle(placed):
            return why
        file = Path(self._temporary.name) / "recipe.yaml"
        write_file(file, [placed.recipe.encode()])
        self._process = await start_local(
            role_command(placed.role, file, placed.words),
            variables=placed.variables,
            folder=Path(placed.folder),
        )
        return ""

    async def read(self) -> bytes:
        """See Started."""
        return b"" if self._process is None else await self._process.read()

    async def tell(self, number: int) -> None:
        """See Started."""
        if self._process is not None:
            self._process.tell(signal.Signals(number))

    async def wait(self) -> int:
        """See Started."""
        assert self._process is not None, "nothing was started"
        status = await self._process.wait()
        self._temporary.cleanup()
        return status


def _obstacle(placed: Placed) -> str:
    """Why a role of that run cannot be on this node; empty where nothing is in the way."""
    node = os.uname().nodename
    if placed.version != __version__:
        return f"{node} has Whetstone {__version__}, and the run is of {placed.version}: install the same"
    if not Path(placed.folder).is_dir():
        return (
            f"{node} has no folder {placed.folder}, in which the run was started: make one there, with what "
            "the recipe names by relative paths"
        )
    return ""
