"""What runs on a host of the cluster: ``python -m whetstone.cluster.on_host``, asked and answering in JSON.

The processes of a node carry the names of cluster and host in their environment. By these alone they are
found again: nothing else is ever stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from whetstone import __version__
from whetstone.cluster.words import MARK, Answer, Ask
from whetstone.judge_service.cluster.ray_token import token_file, token_variables

_CLUSTER, _HOST = "WHETSTONE_CLUSTER", "WHETSTONE_CLUSTER_HOST"
_STORE = "gcs_server"
"""The head's own process, which the others ask until they end."""
_START_S = 300.0
_TRIES = 3
"""Ray gives a node's processes half a minute to start, which a busy machine may need twice."""
_TELLING = "Error", "mismatch", "timed out"
_GRACE_S = 15.0
_KILL_S = 10.0


def main() -> int:
    """Answer what standard input asks."""
    ask = msgspec.json.decode(sys.stdin.buffer.read(), type=Ask)
    answer = {"look": look, "start": start, "stop": stop}[ask.action](ask)
    print(MARK + msgspec.json.encode(answer).decode(), flush=True)
    return 0


def look(ask: Ask) -> Answer:
    """What there is, and nothing done."""
    pids = node_pids(ask)
    taken = ask.head and not pids and _listens(ask.port)
    token = token_file(ask.port).read_text() if ask.head and pids else ""
    return msgspec.structs.replace(_answer(pids), taken=taken, token=token)


def start(ask: Ask) -> Answer:
    """Start a node: the head, or one that joins it."""
    words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats"]
    if ask.head:
        words += ["--head", "--port", str(ask.port), "--include-dashboard=false"]
    else:
        words += ["--address", ask.address]
    if ask.cpus is not None:
        words += ["--num-cpus", str(ask.cpus)]
    if ask.object_store_mb is not None:
        words += ["--object-store-memory", str(ask.object_store_mb << 20)]
    wrong = ""
    # Left alone, Ray runs actors at nice 15: whatever else the machine does would starve the judge's workers.
    marks = {_CLUSTER: ask.cluster, _HOST: ask.host, "RAY_worker_niceness": "0"}
    for _ in range(_TRIES):
        _keep_token(ask)
        wrong = _run(words, {**os.environ, **token_variables(ask.port), **marks})
        if not wrong:
            break
        stop(ask)  # of what had begun
        if "timed out" not in wrong:
            break
    if wrong:
        return msgspec.structs.replace(_answer([]), wrong=wrong)
    return _answer(node_pids(ask))


def stop(ask: Ask) -> Answer:
    """End the node's processes: first its raylet, which ends the actors, and last the head's store."""
    began = node_pids(ask)
    _end(lambda: _those(ask, "raylet"), signal.SIGTERM, _GRACE_S)
    _end(lambda: sorted({*node_pids(ask)} - {*_those(ask, _STORE)}), signal.SIGTERM, _GRACE_S)
    _end(lambda: node_pids(ask), signal.SIGTERM, _GRACE_S)
    _end(lambda: node_pids(ask), signal.SIGKILL, _KILL_S)
    left = node_pids(ask)
    if not _marked({f"{_CLUSTER}={ask.cluster}"}):
        token_file(ask.port).unlink(missing_ok=True)
    wrong = f"the processes {left} do not end" if left else ""
    return msgspec.structs.replace(_answer(left), stopped=len(began) - len(left), wrong=wrong)


def node_pids(ask: Ask) -> list[int]:
    """The living processes of this user that belong to the node."""
    return _marked({f"{_CLUSTER}={ask.cluster}", f"{_HOST}={ask.host}"})


def _those(ask: Ask, command: str) -> list[int]:
    return [pid for pid in node_pids(ask) if _command(pid)[0].endswith(command)]


def _marked(marks: set[str]) -> list[int]:
    wanted, found = {mark.encode() for mark in marks}, list[int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # somebody else's, or gone; what has ended has no environment
                if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return sorted(found)


def _answer(pids: list[int]) -> Answer:
    try:
        ray = version("ray")
    except PackageNotFoundError:
        ray = ""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Answer(python=python, whetstone=__version__, ray=ray, pids=pids, address=_address(pids))


def _keep_token(ask: Ask) -> None:
    """Write the cluster's token where Ray's processes and the judge's server find it, for this user alone."""
    file = token_file(ask.port)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(ask.token)


def _address(pids: list[int]) -> str:
    """Where the head's store listens, as its own command line says it."""
    for words in map(_command, pids):
        options = dict(word.lstrip("-").split("=", 1) for word in words[1:] if "=" in word)
        if words[0].endswith(_STORE):
            return f"{options['node-ip-address']}:{options['gcs_server_port']}"
    return ""


def _run(words: list[str], environment: dict[str, str]) -> str:
    """Why the command failed, or nothing. Its daemons keep its output open, so that goes to a file."""
    with tempfile.TemporaryFile() as output:
        try:
            status = subprocess.run(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_START_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"`ray start` took more than {_START_S:.0f} s"
        output.seek(0)
        lines = [
            line.strip() for line in output.read().decode("utf-8", "replace").splitlines() if line.strip()
        ]
    if status == 0:
        return ""
    telling = [line for line in lines if any(word in line for word in _TELLING)] or lines
    return f"`ray start` ended with status {status}: {' '.join(telling[-3:])[:500]}"


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError:
            return True
    return False


def _end(those: Callable[[], list[int]], number: int, within_s: float) -> None:
    for pid in those():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    deadline = time.monotonic() + within_s
    while those() and time.monotonic() < deadline:
        time.sleep(0.1)


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return [""]


if __name__ == "__main__":
    sys.exit(main())
