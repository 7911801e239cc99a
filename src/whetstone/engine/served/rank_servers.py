"""The servers of a run of several ranks: one for each rank, or for each group of tensor parallelism.

Ranks of one machine share the model folder. The first of them, its owner, writes it. Every group has a
leader, which starts its server and updates it; the others only send requests.
"""

from __future__ import annotations

import json
import os
from typing import Any

from whetstone.core.errors import UserError
from whetstone.engine.engine import ProcessGroup

# torchrun's variables. A server that read them would join the ranks of the run.
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_TORCHRUN_PREFIXES = ("TORCHELASTIC_", "GROUP_", "ROLE_")


class RankServers:
    """The place of this rank among ``ranks``; None is a single process. ``each``: ranks of one server.

    Raises UserError if the ranks of a machine cannot be divided into such groups.
    """

    def __init__(self, ranks: ProcessGroup | None, each: int = 1) -> None:
        self._ranks = ranks if ranks is not None and ranks.size > 1 else None
        self._local_rank, self._leader, self._each = 0, 0, 1
        if self._ranks is None:
            return
        if self._ranks.local_size % each:
            raise UserError(
                f"engine.options.tensor_parallel: {each} devices for each server do not divide the "
                f"{self._ranks.local_size} ranks of a machine"
            )
        self._local_rank = self._ranks.rank % self._ranks.local_size
        self._leader, self._each = self._local_rank - self._local_rank % each, each

    @property
    def several(self) -> bool:
        """Whether there is more than one rank."""
        return self._ranks is not None

    @property
    def owns_folder(self) -> bool:
        """Whether this rank writes the model folder of its machine."""
        return self._local_rank == 0

    @property
    def leads(self) -> bool:
        """Whether this rank starts and updates the server of its group."""
        return self._local_rank == self._leader

    def from_owner(self, value: Any, description: str) -> Any:
        """Return plain JSON data of the owner of this machine's folder. All ranks call this together."""
        return self._from(0, value, description)

    def from_leader(self, value: Any, description: str) -> Any:
        """Return plain JSON data of the leader of this group. All ranks call this together."""
        return self._from(self._leader, value, description)

    def wait(self, description: str) -> None:
        """Wait until every rank has called this."""
        self._from(0, None, description)

    def environment(self) -> dict[str, str | None]:
        """Return the changes of this process's environment for its server: its own devices, and nothing of
        torchrun. None removes a variable."""
        if self._ranks is None:
            return {}
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = listed.split(",") if listed else [str(i) for i in range(self._ranks.local_size)]
        own = devices[self._leader : self._leader + self._each]
        launcher = [name for name in os.environ if name in _TORCHRUN or name.startswith(_TORCHRUN_PREFIXES)]
        return {**dict.fromkeys(launcher), "CUDA_VISIBLE_DEVICES": ",".join(own)}

    def _from(self, local_rank: int, value: Any, description: str) -> Any:
        if self._ranks is None:
            return value
        first = self._ranks.rank - self._local_rank
        told = self._ranks.gather(json.dumps(value).encode(), description)
        return json.loads(told[first + local_rank])
