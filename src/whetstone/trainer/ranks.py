"""The processes that train together, and what they tell each other.

One process alone is the case of size 1: it has no process group, and every method here gives back what it
was given. torchrun starts several (``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK`` in the environment). Whatever one
of them waits for has a name and a deadline, and the first that fails says why for all.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
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

from whetstone.engine.device import accelerator
from whetstone.errors import UserError

T = TypeVar("T")

_FAILED = "whetstone/failed"
_LOST = ("gloo/", "Connection closed", "Connection reset", "Timed out", "timed out", "NCCL", "Broken pipe")
"""What the messages of lost connections hold; torch has no class of its own for gloo's."""


class LostRanks(UserError):
    """Another rank ended or fell silent, and nobody has said why."""


class EndedElsewhere(SystemExit):
    """This rank ends because another one failed, which has said why."""


class Ranks:
    """One of ``size`` processes, the ``rank``-th; ``local_size`` of them are on this machine.

    mesh: over all ranks, for sharding; None for one process alone. group: through which they talk, that of
    all talk unless given. wait: the longest that one waits for the others. host_mesh: as mesh, for what lies
    in the hosts' memory.
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
        """Whether this is the one that writes files and speaks."""
        return self.rank == 0

    def apart(self) -> Ranks:
        """The same ranks, talking by themselves: what one thread asks is not answered by another's word."""
        if self.size == 1:
            return self
        group = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=self._wait))
        return Ranks(self.rank, self.size, self.local_size, self.mesh, group, self._wait, self.host_mesh)

    def gather(self, mine: bytes, what: str) -> list[bytes]:
        """The bytes of every rank, in the order of ranks. ``what`` names the wait."""
        if self.size == 1:
            return [mine]
        with _named(what):
            counts = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
            dist.all_gather(counts, torch.tensor([len(mine)]), self.group)
            longest = max(int(count) for count in counts)
            sent = torch.zeros(longest, dtype=torch.uint8)
            sent[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8) if mine else sent[:0]
            got = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(got, sent, self.group)
        return [part[: int(count)].numpy().tobytes() for part, count in zip(got, counts, strict=True)]

    def gather_data(self, mine: Any, what: str) -> list[Any]:
        """The same for plain JSON data."""
        return [json.loads(part) for part in self.gather(json.dumps(mine).encode(), what)]

    def sum(self, values: Tensor, what: str) -> Tensor:
        """The sum over ranks of a tensor, which is overwritten by it."""
        if self.size > 1:
            with _named(what):
                dist.all_reduce(values, dist.ReduceOp.SUM, self.group)
        return values

    def most(self, number: int, what: str) -> int:
        """The largest number that any rank gives."""
        return number if self.size == 1 else max(self.gather_data(number, what))

    def wait(self, what: str) -> None:
        """Wait until every rank is here."""
        self.gather(b"", what)

    def from_first(self, call: Callable[[], T], what: str) -> T:
        """What ``call`` gives on the first rank, plain JSON data; it runs nowhere else."""
        found = self.gather_data(call() if self.first else None, what)[0]
        return found  # noqa: RET504

    def agree(self, call: Callable[[], T], what: str) -> T:
        """Run ``call`` on every rank. Where it fails on any, all end: there by its error, elsewhere silently.

        For what may fail on some ranks only, such as a full disk, and must leave all of them in one state.
        """
        error: BaseException | None = None
        result: Any = None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        failed = [text for text in self.gather_data(None if error is None else str(error), what) if text]
        if error is not None:
            raise error
        if failed:
            raise EndedElsewhere(1)
        return result


@contextmanager
def joined_ranks(device: str, wait_s: float) -> Generator[Ranks]:
    """The ranks that this process was started among, by torchrun's environment; one alone without it.

    device: as in ``model.device``. wait_s: how long a rank waits for the others, at most, before all end.
    Raises UserError where a machine has fewer devices than ranks. A failure inside ends all ranks: the first
    to fail raises its error, the others :class:`EndedElsewhere`.
    """
    environment = os.environ
    size = int(environment.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Ranks()
        return
    local_size = int(environment.get("LOCAL_WORLD_SIZE", size))
    kind = _own_device(device, environment, local_size)
    backend = "gloo" if kind == "cpu" else f"cpu:gloo,{kind}:{dist.get_default_backend_for_device(kind)}"
    store, rank = _meeting_place(timedelta(seconds=wait_s))
    dist.init_process_group(
        backend, timeout=timedelta(seconds=wait_s), store=store, rank=rank, world_size=size
    )
    mesh = init_device_mesh(kind, (size,), mesh_dim_names=("ranks",))
    host = mesh if kind == "cpu" else init_device_mesh("cpu", (size,), mesh_dim_names=("ranks",))
    ranks = Ranks(rank, size, local_size, mesh, wait=timedelta(seconds=wait_s), host_mesh=host)
    with _ending_together(rank, store):
        yield ranks
    # Not after a failure: taking leave of ranks that are gone may wait for them.
    dist.destroy_process_group()


_met: list[tuple[Store, int]] = []
_joins = itertools.count()


def _meeting_place(wait: timedelta) -> tuple[Store, int]:
    """The store that this process shares with its siblings, and its rank; they are looked for once.

    Each time that the ranks join, as for the stages of a run, gets a part of the store for itself: the
    addresses that an earlier time has left would be taken for its own. All ranks join equally often.
    """
    if not _met:
        store, rank, _ = next(rendezvous("env://", timeout=wait))
        _met.append((store, rank))
    store, rank = _met[0]
    part = PrefixStore(f"whetstone/{next(_joins)}", store)
    part.set_timeout(wait)
    return part, rank


def _own_device(device: str, environment: Mapping[str, str], local_size: int) -> str:
    """Take this rank's device, and return its kind."""
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
def _named(what: str) -> Generator[None]:
    """Say what was waited for when the others are gone."""
    try:
        yield
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise LostRanks(_gone(what)) from error


@contextmanager
def _ending_together(rank: int, store: Store) -> Generator[None]:
    """Let the first rank that fails speak, and the others end silently."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, GeneratorExit | EndedElsewhere):
            raise
        if not _first_to_fail(rank, store):
            raise EndedElsewhere(1) from error
        if isinstance(error, RuntimeError) and _is_lost(error):
            raise LostRanks(_gone("the gradients and weights of a step")) from error
        raise


def _first_to_fail(rank: int, store: Store) -> bool:
    """Whether no other rank has failed yet. The store is torchrun's, or that of rank 0."""
    with contextlib.suppress(RuntimeError):
        return store.compare_set(_FAILED, "", str(rank)).decode() == str(rank)
    return True


def _is_lost(error: BaseException) -> bool:
    return any(word in str(error) for word in _LOST)


def _gone(what: str) -> str:
    return (
        f"another rank ended, or did not come within `trainer.wait_s`, while this one waited for {what}, and "
        "it left no word: its own output or the kernel's log (out of memory?) may say why. The same command "
        "resumes from the last checkpoint"
    )
