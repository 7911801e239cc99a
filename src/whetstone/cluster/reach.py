"""A host asked: over ssh, or here without it."""

from __future__ import annotations

import shlex
import subprocess
import sys

import msgspec
from msgspec import Struct

from whetstone.cluster.hosts import Host
from whetstone.cluster.words import MARK, Answer, Ask
from whetstone.errors import UserError

_MODULE = "whetstone.cluster.on_host"
_CONNECT_S = 10
_ANSWER_S = 1200.0
_SSH_FAILED = 255
_NO_COMMAND = (126, 127)


class Way(Struct, frozen=True):
    """How hosts are reached: the Python of each (the same path everywhere), and a configuration for ssh."""

    python: str = sys.executable
    ssh_config: str | None = None

    def ask(self, host: Host, ask: Ask) -> Answer:
        """What ``host`` answers. Raises UserError, which names it."""
        words = [self.python, "-m", _MODULE]
        command = words if host.is_here else [*self._ssh(host), "--", host.target, shlex.join(words)]
        try:
            done = subprocess.run(
                command, input=msgspec.json.encode(ask), capture_output=True, timeout=_ANSWER_S, check=False
            )
        except FileNotFoundError as error:
            what = f"the Python {self.python}" if host.is_here else "ssh (Debian: openssh-client)"
            raise UserError(f"{host.name}: {what} is not on this machine: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise UserError(f"{host.name}: no answer within {_ANSWER_S:.0f} s") from None
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            if line.startswith(MARK):
                return msgspec.json.decode(line[len(MARK) :], type=Answer)
        raise UserError(f"{host.name}: {self._why(host, done)}")

    def _ssh(self, host: Host) -> list[str]:
        words = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}"]
        words += ["-F", self.ssh_config] if self.ssh_config else []
        return words + (["-p", str(host.ssh_port)] if host.ssh_port else [])

    def _why(self, host: Host, done: subprocess.CompletedProcess[bytes]) -> str:
        """What went wrong with a host that did not answer, and the way out."""
        lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        said = lines[-1] if lines else f"status {done.returncode}"
        if done.returncode == _SSH_FAILED and not host.is_here:
            trial = shlex.join([*self._ssh(host), host.target, "true"])
            return f"ssh does not get there ({said}); this must work without a question: {trial}"
        if done.returncode in _NO_COMMAND:
            return f"there is no Python at {self.python} ({said}); give --python PATH, the same on every host"
        if "No module named" in said:
            return (
                f"Whetstone is not installed there ({said}); on it run: {self.python} -m pip install "
                "'whetstone-rl[ray]'"
            )
        return f"it did not answer as expected ({said})"
