"""Settings of the transfer of weights from a trainer to its replicas. Torch-free."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field, model_validator

from whetstone.core.settings import Count, NonEmpty, Positive, Section

# Environment variable with the token of a run, which also protects its weights.
TOKEN_VARIABLE = "WHETSTONE_FLOW_TOKEN"


def default_threads() -> int:
    """Return the number of threads for versions of weights: a quarter of the cores, from 1 to 4."""
    return max(1, min(4, len(os.sched_getaffinity(0)) // 4))


class WeightsSection(Section):
    """How new weights travel from the trainer to the replicas.

    by: ``tcp``, from a port of the trainer, or ``folder``, a folder that all roles can access.
    send: ``delta``: the changes since the previous version, and a full copy for replicas that missed too
        many. ``full``: always the full version, of which a replica fetches the parts that differ from its
        own.
    host, port: where the trainer listens. Port 0 is a free one; several ranks listen on this port and the
        following ones. Beyond loopback the environment must provide a token.
    address: HOST:PORT by which replicas reach rank 0, if the trainer cannot determine it.
    folder: empty: a folder in the run's folder.
    keep: the number of deltas kept for late replicas; fewer if a full copy is smaller.
    copies: the most full copies in the trainer's host memory, for slow readers of older ones.
    threads: the number of threads that encode in the trainer, and compare, decode and verify in a replica;
        default: a quarter of the cores, at most 4. Raise it if a version takes longer than a step.
    streams: connections by which a replica fetches one version.
    silence_s: seconds without data after which a request is repeated.
    """

    by: Literal["tcp", "folder"] = "tcp"
    send: Literal["delta", "full"] = "delta"
    host: NonEmpty = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    address: str = ""
    folder: str = ""
    keep: Annotated[int, Field(ge=1, le=64)] = 16
    copies: Annotated[int, Field(ge=2)] = 3
    threads: Count | None = None
    streams: Annotated[int, Field(ge=1, le=64)] = 4
    silence_s: Positive = 15.0

    @model_validator(mode="after")
    def _check_transport(self) -> WeightsSection:
        if self.by == "tcp" and self.folder:
            raise ValueError("`folder` is for `by: folder`; leave it out, or set that")
        if self.by == "folder" and (self.address or self.port):
            raise ValueError("`address` and `port` are for `by: tcp`; leave them out, or set that")
        return self
