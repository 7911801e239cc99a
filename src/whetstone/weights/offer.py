"""Where a version of weights can be had, in a few words that travel to those who want it."""

from __future__ import annotations

from msgspec import Struct

TCP, FOLDER = "tcp:", "folder:"
"""How ``where`` begins: HOST:PORT of a publisher follows, or the path of a folder."""


class Offer(Struct, frozen=True):
    """Weights that a trainer has published: where they are, in words of who fetches them.

    ``lineage`` tells versions apart that have the same number but were made by another start of a trainer.
    """

    version: int
    where: str = ""
    lineage: str = ""


NONE_YET = Offer(-(1 << 31))
"""What is served before there are any weights of the trainer's, and while none can be applied."""
