"""Ranks that are real processes: forked, so that nobody imports torch again, joined over the loopback."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch

from whetstone.trainer.ranks import Ranks, join_ranks

WAIT_S = 600.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def on_ranks(size: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """What ``work`` gives on each rank. AssertionError with its traceback when one fails."""
    port = free_port()
    children = [start(rank, size, port, work) for rank in range(size)]
    results: list[Any] = []
    for child, reading in children:
        with os.fdopen(reading, "rb") as told:
            data = told.read()
        os.waitpid(child, 0)
        results.append(pickle.loads(data) if data else AssertionError("It gave no reason"))
    for result in results:
        if isinstance(result, AssertionError):
            raise result
    return results


def start(rank: int, size: int, port: int, work: Callable[[Ranks], Any]) -> tuple[int, int]:
    """Fork one rank; its process id, and the reading end of what it gives."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    try:
        torch.set_num_threads(1)
        with join_ranks("cpu", WAIT_S) as ranks:
            given = pickle.dumps(work(ranks))
    except BaseException:
        given = pickle.dumps(AssertionError(f"rank {rank}:\n{traceback.format_exc()}"))
    with os.fdopen(writing, "wb") as told:
        told.write(given)
    sys.stdout.flush()
    os._exit(0)
