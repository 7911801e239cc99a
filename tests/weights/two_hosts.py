"""Two hosts on this machine: network namespaces with one link between them, which can be slow, or cut."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

TRAINER, REPLICA = "10.77.0.1", "10.77.0.2"
"""The addresses of the two."""

_NETWORK = 0x40000000  # CLONE_NEWNET; Python has ``os.setns`` from 3.12 on


@dataclass
class Hosts:
    """The names of their namespaces."""

    trainer: str
    replica: str

    def on(self, host: str, call: Callable[[], Any]) -> Any:
        """Run ``call`` on a thread of a host; sockets and threads that it makes are there, too."""
        found: list[Any] = []

        def run() -> None:
            try:
                with open(f"/run/netns/{host}") as place:
                    assert not ctypes.CDLL(None).setns(place.fileno(), _NETWORK)
                found.append(call())
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def link(self, state: str) -> None:
        """``down`` cuts the link between them, ``up`` mends it."""
        ip("-n", self.replica, "link", "set", "wire", state)


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@contextmanager
def two_hosts() -> Generator[Hosts]:
    """Skips where this machine does not let us make them."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root, and `ip` of iproute2")
    hosts = Hosts(f"wt{os.getpid()}", f"wr{os.getpid()}")
    try:
        try:
            ip("netns", "add", hosts.trainer)
            ip("netns", "add", hosts.replica)
            ends = ["type", "veth", "peer", "name", "wire", "netns", hosts.replica]
            ip("-n", hosts.trainer, "link", "add", "wire", *ends)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        for host, address in ((hosts.trainer, TRAINER), (hosts.replica, REPLICA)):
            ip("-n", host, "address", "add", f"{address}/24", "dev", "wire")
            ip("-n", host, "link", "set", "wire", "up")
            ip("-n", host, "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in (hosts.trainer, hosts.replica):
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
