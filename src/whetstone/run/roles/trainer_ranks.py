"""Starts a trainer of several ranks with one command: the role is the first rank, and starts the others.

torchrun would hide how the ranks ended, which decides whether to restart the role.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from torch._C._distributed_c10d import TCPStore

from whetstone.core.errors import BAD_INPUT
from whetstone.core.outputs import write_file
from whetstone.run.recipe import Recipe, dump_recipe
from whetstone.run.roles.supervise import role_command
from whetstone.trainer.ranks import RankLost, StoppedByOtherRank

_LOOPBACK = "127.0.0.1"
_GRACE_S = 15.0
_CRASHED = 1


def own_rank() -> int:
    """Return the rank of this process from its environment; 0 without one."""
    return int(os.environ.get("RANK", "0"))


def rank_count(recipe: Recipe) -> int:
    """Return the number of ranks of a trainer, from torchrun or else from the recipe."""
    return int(os.environ.get("WORLD_SIZE", "0")) or (1 if recipe.flow is None else recipe.flow.ranks)


@contextmanager
def start_other_ranks(
    recipe: Recipe, arguments: Sequence[str], log: Callable[[str], None]
) -> Generator[None]:
    """Start the other ranks of this trainer for the duration of the block.

    arguments: of their command, after the recipe. Nothing is started for a single rank, or under torchrun.

    If ranks were stopped by each other, raises SystemExit with a status that restarts the role, unless one of
    them has refused the input.
    """
    count = rank_count(recipe)
    # Under torchrun all ranks run this code, and torchrun has started them.
    if count == 1 or "WORLD_SIZE" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="whetstone-") as folder, _rendezvous_store() as port:
        file = Path(folder) / "recipe.yaml"
        # The recipe as it was read, with the overrides of the command line.
        write_file(file, [dump_recipe(recipe).encode()])
        with _environment_variables(_rank_environment(count, port, 0)), ExitStack() as undone:
            others = [
                _RankProcess(
                    rank, role_command("trainer", file, arguments), _rank_environment(count, port, rank), log
                )
                for rank in range(1, count)
            ]
            for other in others:
                undone.callback(other.end)
            try:
                yield
                for other in others:
                    other.status()
            except (RankLost, StoppedByOtherRank) as error:
                statuses = [other.status() for other in others]
                if isinstance(error, RankLost):
                    log(str(error))
                raise StoppedByOtherRank(BAD_INPUT if BAD_INPUT in statuses else _CRASHED) from error


class _RankProcess:
    """Another rank: a process of the same role. ``log`` reports its end by a signal."""

    def __init__(
        self, rank: int, command: Sequence[str], environment: Mapping[str, str], log: Callable[[str], None]
    ) -> None:
        self._rank, self._log = rank, log
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            # Ctrl-C in the terminal must reach the first rank only.
            start_new_session=True,
        )
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def status(self) -> int:
        """Return the exit status after a grace period; a rank that is still running counts as crashed."""
        self._ending.set()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        status = self._process.returncode
        if status is not None and status < 0:
            self._log(f"rank {self._rank} of the trainer was ended by {signal.Signals(-status).name}")
        return _CRASHED if status is None else status

    def end(self) -> None:
        """Kill the process if it is still running."""
        self._ending.set()
        # A rank that is stuck in a collective does not react to SIGTERM.
        self._process.kill()
        self._watcher.join()

    def _watch(self) -> None:
        """End this process if the other rank ends. Before the process group exists, nothing else would
        notice."""
        status = self._process.wait()
        if status and not self._ending.wait(_GRACE_S):
            self.status()
            # The main thread may be stuck in a collective, where an exception cannot reach it.
            os._exit(BAD_INPUT if status == BAD_INPUT else _CRASHED)


@contextmanager
def _rendezvous_store() -> Generator[int]:
    """Create the store of the process group on loopback. By default torch's store listens on every
    address."""
    with socket.socket() as listening:
        listening.bind((_LOOPBACK, 0))
        listening.listen()
        port = int(listening.getsockname()[1])
        store = TCPStore(
            _LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
        )
    yield port
    del store


def _rank_environment(size: int, port: int, rank: int) -> dict[str, str]:
    """Return the variables that torchrun would set, for ranks on this machine with an existing store."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": _LOOPBACK,
        "MASTER_PORT": str(port),
        # With this, torch's rank 0 joins the store instead of creating one.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
    }


@contextmanager
def _environment_variables(variables: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
