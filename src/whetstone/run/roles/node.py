"""Runs a role on a cluster node: starts its process and passes on its output.

It is the class of a Ray actor, but does not depend on Ray.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from whetstone import __version__
from whetstone.core.outputs import write_file
from whetstone.run.roles.process import LocalProcess, role_command, start_local


class RemoteRole(Struct, frozen=True):
    """A role to start: ``whetstone role ROLE`` with these arguments after the recipe.

    folder: the working directory, for relative paths in the recipe. variables: of its environment. version:
    the Whetstone version of the driver.
    """

    role: str
    words: list[str]
    recipe: str
    folder: str
    variables: dict[str, str]
    version: str = __version__


class RoleHost:
    """One role on this node. Its process ends when this one ends, for any reason."""

    def __init__(self, setup: bytes) -> None:
        self._role = msgspec.msgpack.decode(setup, type=RemoteRole)
        self._temporary = TemporaryDirectory(prefix="whetstone-")
        self._process: LocalProcess | None = None

    async def start(self) -> str:
        """Start the role. Return an empty text, or why it cannot start here."""
        role = self._role
        if reason := _refusal_reason(role):
            return reason
        file = Path(self._temporary.name) / "recipe.yaml"
        write_file(file, [role.recipe.encode()])
        self._process = await start_local(
            role_command(role.role, file, role.words),
            variables=role.variables,
            folder=Path(role.folder),
        )
        return ""

    async def read(self) -> bytes:
        """See RoleProcess."""
        return b"" if self._process is None else await self._process.read()

    async def send_signal(self, number: int) -> None:
        """See RoleProcess."""
        if self._process is not None:
            self._process.send_signal(signal.Signals(number))

    async def wait(self) -> int:
        """See RoleProcess."""
        assert self._process is not None, "nothing was started"
        status = await self._process.wait()
        self._temporary.cleanup()
        return status


def _refusal_reason(role: RemoteRole) -> str:
    """Return why this node cannot run the role; empty if it can."""
    node = os.uname().nodename
    if role.version != __version__:
        return (
            f"{node} has Whetstone {__version__}, but the run uses {role.version}: install the same version"
        )
    if not Path(role.folder).is_dir():
        return (
            f"{node} has no folder {role.folder}, in which the run was started: create it there with "
            "the files that "
            "the recipe names by relative paths"
        )
    return ""
