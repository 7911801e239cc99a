"""A trainer of several ranks from one command: the role is the first of them, and starts the others.

torchrun would hide how they ended, and with it whether the role is to be started again.
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

from whetstone.errors import BAD_INPUT
from whetstone.launch.recipe import Recipe, dump_recipe
from whetstone.launch.roles.process import role_command
from whetstone.outputs import write_file
from whetstone.trainer.ranks import EndedElsewhere, LostRanks

_HERE = "127.0.0.1"
_LAST_WORDS_S = 15.0
_DIED = 1


def own_rank() -> int:
    """Which of a trainer's ranks this process is, by its environment; 0 of one alone."""
    return int(os.environ.get("RANK", "0"))


def ranks_of(recipe: Recipe) -> int:
    """How many ranks a trainer of this recipe has: torchrun's word, or else the recipe's."""
    return int(os.environ.get("WORLD_SIZE", "0")) or (1 if recipe.flow is None else recipe.flow.ranks)


@contextmanager
def siblings(recipe: Recipe, words: Sequence[str], say: Callable[[str], None]) -> Generator[None]:
    """The other ranks of this trainer, started around the block and ended with it.

    words: of their command, after the recipe. None are started where there is one rank, or by torchrun.

    When the ranks have ended each other, raises SystemExit with a status by which the role is started again,
    unless one of them has refused the input.
    """
    count = ranks_of(recipe)
    if count == 1 or "WORLD_SIZE" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="whetstone-") as folder, _meeting_place() as port:
        file = Path(folder) / "recipe.yaml"
        write_file(file, [dump_recipe(recipe).encode()])
        with _set(_environment(count, port, 0)), ExitStack() as undone:
            others = [
                _Sibling(rank, role_command("trainer", file, words), _environment(count, port, rank), say)
                for rank in range(1, count)
            ]
            for other in others:
                undone.callback(other.end)
            try:
                yield
                for other in others:
                    other.status()
            except (LostRanks, EndedElsewhere) as error:
                statuses = [other.status() for other in others]
                if isinstance(error, LostRanks):
                    say(str(error))
                raise EndedElsewhere(BAD_INPUT if BAD_INPUT in statuses else _DIED) from error


class _Sibling:
    """Another rank: a process of the same role. ``say`` is told how it ended, unless well or by a word of
    its own."""

    def __init__(
        self, rank: int, command: Sequence[str], environment: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._rank, self._say = rank, say
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            start_new_session=True,  # a terminal's Ctrl-C is the first one's to hear
        )
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def status(self) -> int:
        """How it ended, given a moment to do so by itself; one that did not counts as one that died."""
        self._over.set()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS_S)
        status = self._process.returncode
        if status is not None and status < 0:
            self._say(f"rank {self._rank} of the trainer was ended by {signal.Signals(-status).name}")
        return _DIED if status is None else status

    def end(self) -> None:
        """End it, if it has not ended."""
        self._over.set()
        self._process.kill()
        self._watcher.join()

    def _watch(self) -> None:
        """Not to be waited for where it is no more: before the ranks have met, nothing else would tell."""
        status = self._process.wait()
        if status and not self._over.wait(_LAST_WORDS_S):
            self.status()
            os._exit(BAD_INPUT if status == BAD_INPUT else _DIED)


@contextmanager
def _meeting_place() -> Generator[int]:
    """The port of a store at which the ranks meet. By itself torch's would listen on every address."""
    with socket.socket() as listening:
        listening.bind((_HERE, 0))
        listening.listen()
        port = int(listening.getsockname()[1])
        store = TCPStore(
            _HERE, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
        )
    yield port
    del store


def _environment(size: int, port: int, rank: int) -> dict[str, str]:
    """What torchrun would say, of ranks on this machine that meet at a store which is there."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": _HERE,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
    }


@contextmanager
def _set(variables: Mapping[str, str]) -> Generator[None]:
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
