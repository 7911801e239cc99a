"""A rollout replica as the flow sees it."""

from __future__ import annotations

from msgspec import Struct, field


class Member(Struct):
    """``heard``: when it last said something. ``room``: for how many prompts it has room in all.

    versions: of the weights that it serves, by model. load: what it says of itself.
    """

    heard: float
    room: int = 0
    versions: dict[str, int] = field(default_factory=dict[str, int])
    load: dict[str, float] = field(default_factory=dict[str, float])

    def hear(self, now: float, room: int, versions: dict[str, int], load: dict[str, float]) -> None:
        """Note what it says."""
        self.heard, self.room, self.versions, self.load = now, room, versions, load
