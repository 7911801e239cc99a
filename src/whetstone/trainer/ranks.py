"""The processes that train together, and their collective operations.

A single process is the case of size 1: it has no process group, and every method returns its input. torchrun
starts several processes (``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK`` in the environment). Every wait has a
description and a deadline, and the first rank that fails reports the reason for all.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from whetstone.core.errors import UserError
from whetstone.engine.device import accelerator

T = TypeVar("T")

_FAILED, _ENDED = "whetstone/failed", "whetstone/ended"
# Seconds for which rank 0 keeps its store for the other ranks after a failure.
_LINGER_S = 2.0
# Parts of the messages of lost connections; torch has no specific class for gloo's errors.
_CONNECTION_ERRORS = (
    "gloo/",
    "Connection closed",
    "Connection reset",
    "Timed out",
    "timed out",
    "NCCL",
    "Broken pipe",
)


class RankLost(UserError):
    """Another rank ended or does not answer, without giving a reason."""


class StoppedByOtherRank(SystemExit):
    """This rank ends because another one failed and reported the reason."""


class Ranks:
    """One of ``size`` processes, number ``rank``; ``local_size`` of them are on this machine.

    mesh: over all ranks, for sharding; None for a single process. group: the process group of the
    collectives; default: the group of all ranks. wait: timeout of a collective. host_mesh: as mesh, for
    tensors in host memory.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        local_size: int = 1,
        mesh: DeviceMesh | None = None,
        group: dist.ProcessGroup | None = None,
        wait: timedelta | None = None,
        host_mesh: DeviceMesh | None = None,
    ):
        self.rank = rank
        self.size = size
        self.local_size = local_size
        self.mesh = mesh
        self.group = group
        self._wait = wait
        self.host_mesh = host_mesh

    @property
    def first(self) -> bool:
        """Whether this rank writes files and prints."""
        return self.rank == 0

    def new_group(self) -> Ranks:
        """Return the same ranks with a separate process group, so that collectives of two threads do not
        mix."""
        if self.size == 1:
            return self
        group = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=self._wait))
        return Ranks(self.rank, self.size, self.local_size, self.mesh, group, self._wait, self.host_mesh)

    def gather(self, data: bytes, description: str) -> list[bytes]:
        """Return the bytes of every rank, in rank order. ``description`` names the wait in errors."""
        if self.size == 1:
            return [data]
        with _describe_lost_ranks(description):
            counts = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
            dist.all_gather(counts, torch.tensor([len(data)]), self.group)
            longest = max(int(count) for count in counts)
            # `all_gather` needs tensors of one size.
            sent = torch.zeros(longest, dtype=torch.uint8)
            sent[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else sent[:0]
            got = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(got, sent, self.group)
        return [part[: int(count)].numpy().tobytes() for part, count in zip(got, counts, strict=True)]

    def gather_data(self, value: Any, description: str) -> list[Any]:
        """Return plain JSON data of every rank, in rank order."""
        return [json.loads(part) for part in self.gather(json.dumps(value).encode(), description)]

    def sum(self, values: Tensor, description: str) -> Tensor:
        """Sum a tensor over ranks, in place, and return it."""
        if self.size > 1:
            with _describe_lost_ranks(description):
                dist.all_reduce(values, dist.ReduceOp.SUM, self.group)
        return values

    def largest(self, number: int, description: str) -> int:
        """Return the largest number of all ranks."""
        return number if self.size == 1 else max(self.gather_data(number, description))

    def wait(self, description: str) -> None:
        """Wait until every rank has called this."""
        self.gather(b"", description)

    def from_first(self, call: Callable[[], T], description: str) -> T:
        """Run ``call`` on the first rank only, and return its result (plain JSON data) on every rank."""
        found = self.gather_data(call() if self.first else None, description)[0]
        return found  # noqa: RET504

    def agree(self, call: Callable[[], T], description: str) -> T:
        """Run ``call`` on every rank. If it fails on any rank, all end: that rank with its error, the others
        silently.

        For operations that may fail on some ranks only, such as with a full disk, and must leave all ranks in
        the same state.
        """
        error: BaseException | None = None
        result: Any = None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        failed = [
            text for text in self.gather_data(None if error is None else str(error), description) if text
        ]
        if error is not None:
            raise error
        if failed:
            raise StoppedByOtherRank(1)
        return result


@contextmanager
def join_ranks(device: str, wait_s: float) -> Generator[Ranks]:
    """Yield the ranks among which torchrun started this process; a single rank without torchrun.

    device: as in ``model.device``. wait_s: the longest wait for the other ranks, in seconds. Raises UserError
    if a machine has fewer devices than ranks. A failure in the block ends all ranks: the first to fail raises
    its error, the others :class:`StoppedByOtherRank`.
    """
    environment = os.environ
    size = int(environment.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks()
        return
    local_size = int(environment.get("LOCAL_WORLD_SIZE", size))
    kind = _own_device(device, environment, local_size)
    backend = "gloo" if kind == "cpu" else f"cpu:gloo,{kind}:{dist.get_default_backend_for_device(kind)}"
    store, rank = _rendezvous(timedelta(seconds=wait_s))
    dist.init_process_group(
        backend, timeout=timedelta(seconds=wait_s), store=store, rank=rank, world_size=size
    )
    mesh = init_device_mesh(kind, (size,), mesh_dim_names=("ranks",))
    # Master weights of an offloaded optimizer are sharded in host memory.
    host = mesh if kind == "cpu" else init_device_mesh("cpu", (size,), mesh_dim_names=("ranks",))
    ranks = Ranks(rank, size, local_size, mesh, wait=timedelta(seconds=wait_s), host_mesh=host)
    with _report_first_failure(rank, size, store):
        yield ranks
    # Not after a failure: destroying the group may wait for ranks that have ended.
    dist.destroy_process_group()


_rendezvous_result: list[tuple[Store, int]] = []
_joins = itertools.count()


def _rendezvous(wait: timedelta) -> tuple[Store, int]:
    """Return the store that this process shares with the other ranks, and its rank. The rendezvous is made
    once.

    Each time that the ranks join, as for each stage of a run, they use a new prefix of the store. Otherwise
    they would read addresses that an earlier group left. All ranks join equally often.
    """
    if not _rendezvous_result:
        store, rank, _ = next(rendezvous("env://", timeout=wait))
        _rendezvous_result.append((store, rank))
    store, rank = _rendezvous_result[0]
    part = PrefixStore(f"whetstone/{next(_joins)}", store)
    part.set_timeout(wait)
    return part, rank


def _own_device(device: str, environment: Mapping[str, str], local_size: int) -> str:
    """Select this rank's device, and return its kind."""
    kind = accelerator() if device == "auto" else torch.device(device).type
    if kind is None or kind == "cpu":
        return "cpu"
    if device[-1].isdecimal():
        raise UserError(
            f"model.device: `{device}` is one device, and {local_size} ranks on this machine need one each; "
            f"set it to `{kind}` or `auto`"
        )
    if kind != accelerator() or torch.accelerator.device_count() < local_size:
        count = torch.accelerator.device_count() if kind == accelerator() else 0
        raise UserError(
            f"model.device: {local_size} ranks were started on this machine, and torch sees {count} `{kind}` "
            f"devices; start torchrun with --nproc-per-node {count or 1} (for a flow's trainer set "
            "`flow.ranks`), or set model.device=cpu"
        )
    torch.accelerator.set_device_index(int(environment["LOCAL_RANK"]))
    return kind


@contextmanager
def _describe_lost_ranks(description: str) -> Generator[None]:
    """Raise RankLost with the description of the wait if the other ranks have ended."""
    try:
        yield
    except RuntimeError as error:
        if not _is_connection_error(error):
            raise
        raise RankLost(_lost_message(description)) from error


@contextmanager
def _report_first_failure(rank: int, size: int, store: Store) -> Generator[None]:
    """Let only the first rank that fails report its error; the others end silently."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, GeneratorExit | StoppedByOtherRank):
            raise
        # One failure makes all ranks fail. Only the first one knows the cause.
        first = _is_first_failure(rank, store)
        _count_failed(rank, size, store)
        if not first:
            raise StoppedByOtherRank(1) from error
        if isinstance(error, RuntimeError) and _is_connection_error(error):
            raise RankLost(_lost_message("the gradients and weights of a step")) from error
        raise


def _is_first_failure(rank: int, store: Store) -> bool:
    """Return whether no other rank has failed before. The store belongs to torchrun or to rank 0."""
    with contextlib.suppress(RuntimeError):
        return store.compare_set(_FAILED, "", str(rank)).decode() == str(rank)
    return True


def _count_failed(rank: int, size: int, store: Store) -> None:
    """Count a failed rank. Rank 0 may hold the store, so it waits a moment for the other ranks to fail too.

    Otherwise a rank that fails for the same reason finds no store, and reports the reason a second time.
    """
    with contextlib.suppress(RuntimeError):
        ended = store.add(_ENDED, 1)
        until = time.monotonic() + _LINGER_S
        while rank == 0 and ended < size and time.monotonic() < until:
            time.sleep(0.02)
            ended = store.add(_ENDED, 0)


def _is_connection_error(error: BaseException) -> bool:
    return any(word in str(error) for word in _CONNECTION_ERRORS)


def _lost_message(description: str) -> str:
    return (
        "another rank ended, or did not answer within `trainer.wait_s`, while this rank waited for "
        f"{description}. "
        "It gave no reason: see its output and the kernel's log (out of memory?). The same command "
        "resumes from the last checkpoint"
    )
