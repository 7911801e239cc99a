"""``whetstone`` as a process of its own that need not import torch: forked off a server that has done so.

Importing takes several times as long as what a tiny run does. What such a process does, prints and leaves,
and how it is killed, is as of ``python -m whetstone``, the command that test_whole_run.py has as it stands.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext
from pathlib import Path

from whetstone.engine.torch_environment import bound_kernel_caches, sleep_while_waiting

ENOUGH_S = 1500.0
_SERVER = ForkServerContext()
_SERVER.set_forkserver_preload(
    [
        "pytest",
        "torch._dynamo",
        "transformers.models.llama.modeling_llama",
        "transformers.models.auto.modeling_auto",
        "whetstone.cli.eval",
        "whetstone.cli.train",
        "whetstone.run.stages",
        "whetstone.run.separate_evaluation",
    ]
)


def warm_server() -> ForkServerContext:
    """A server whose processes need not import torch; a test starts a process of its own with it."""
    # The server must find these in its environment before it imports torch.
    bound_kernel_caches()
    sleep_while_waiting()
    return _SERVER


def _be_whetstone(arguments: list[str], printed: str, environment: Mapping[str, str], folder: str) -> None:
    os.environ |= environment
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{printed}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.setsid()
    from whetstone.cli.main import main

    sys.exit(main(arguments))


class WarmCommand:
    """``whetstone ARGUMENTS``, begun and not waited for; to be left by ``with``.

    ``environment`` holds variables that only this process has; ``folder`` is where it starts.
    """

    def __init__(
        self, *arguments: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self._printed = tempfile.TemporaryDirectory()
        place = str(folder or Path.cwd())
        self._process = warm_server().Process(
            target=_be_whetstone, args=(list(arguments), self._printed.name, environment or {}, place)
        )
        self._process.start()

    def __enter__(self) -> WarmCommand:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self.wait()
        self._printed.cleanup()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        self._process.join(ENOUGH_S)
        assert self._process.exitcode is not None, "it did not end"
        return self._process.exitcode

    def printed(self, name: str = "out") -> str:
        """What it has printed so far: ``out`` or ``err``."""
        path = Path(self._printed.name, name)
        return path.read_text(encoding="utf-8") if path.exists() else ""


def whetstone(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``whetstone ARGUMENTS`` to its end, in ``folder``."""
    with WarmCommand(*arguments, folder=folder) as command:
        status = command.wait()
        return subprocess.CompletedProcess(
            ["whetstone", *arguments], status, command.printed(), command.printed("err")
        )
