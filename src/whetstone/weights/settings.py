"""How weights travel from a trainer to those who sample. Torch-free."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from whetstone.settings import Count, NonEmpty, Positive, Section

TOKEN_VARIABLE = "WHETSTONE_FLOW_TOKEN"
"""Of the environment: the token of a run, which guards its weights, too."""


class WeightsSection(Section):
    """How new weights travel from the trainer to the replicas.

    by: ``tcp``, from a port of the trainer's, or ``folder``, one that all of them see.
    send: ``delta``, what changed since the version before, and a full copy to who has missed too many; or
        ``full``, always the whole, of which a replica fetches what differs from its own.
    host, port: where the trainer listens; port 0 is a free one, and the ranks of one trainer listen on this
        one and those after it. Beyond loopback the environment has to name a token. address: HOST:PORT by
        which replicas reach rank 0, if that is not what the trainer finds out by itself.
    folder: empty for one in the folder of the run. full_every: a full copy there after as many deltas.
    keep: so many deltas stay for late replicas, fewer where a full copy is smaller.
    copies: full copies that the trainer's host holds at most, for slow readers of older ones.
    threads: which encode beside the trainer. streams: connections by which a replica fetches one version.
    silence_s: how long nobody may say anything of what was asked, before it is asked for again.
    """

    by: Literal["tcp", "folder"] = "tcp"
    send: Literal["delta", "full"] = "delta"
    host: NonEmpty = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    address: str = ""
    folder: str = ""
    full_every: Count = 16
    keep: Annotated[int, Field(ge=1, le=64)] = 16
    copies: Annotated[int, Field(ge=2)] = 3
    threads: Count = 1
    streams: Annotated[int, Field(ge=1, le=64)] = 4
    silence_s: Positive = 15.0

    @model_validator(mode="after")
    def _one_way(self) -> WeightsSection:
        if self.by == "tcp" and self.folder:
            raise ValueError("`folder` is for `by: folder`; leave it out, or set that")
        if self.by == "folder" and (self.address or self.port):
            raise ValueError("`address` and `port` are for `by: tcp`; leave them out, or set that")
        return self
