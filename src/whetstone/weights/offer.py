"""The announcement of published weights, which trainers send to replicas."""

from __future__ import annotations

from msgspec import Struct

# The beginnings of `url`: HOST:PORT of a publisher follows, or the path of a folder.
TCP, FOLDER = "tcp:", "folder:"


class Offer(Struct, frozen=True):
    """Weights that a trainer has published, and the URL to fetch them from.

    ``run_id`` distinguishes versions with the same number that different starts of a trainer published.
    """

    version: int
    url: str = ""
    run_id: str = ""


# Served before the trainer has published weights, and while none can be applied.
NO_WEIGHTS = Offer(-(1 << 31))
