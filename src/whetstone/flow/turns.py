"""Whose turn it is when there are prompts to lease: those who have room ask one after the other."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable

from whetstone.flow.desk import Desk

_AT_ONCE = 32
"""So many are asked at most when something has happened: of a thousand replicas, not each at every group."""


class Turns:
    """The replicas that wait and have room, in the order in which they are asked."""

    def __init__(self) -> None:
        self._hungry: OrderedDict[str, None] = OrderedDict()

    def add(self, replica: str) -> None:
        """It has room, and got nothing."""
        self._hungry.setdefault(replica)

    def discard(self, replica: str) -> None:
        """It does not wait any more."""
        self._hungry.pop(replica, None)

    def serve(self, desk: Desk, give: Callable[[str], bool]) -> None:
        """``give`` to one after the other for as long as there may be something; whoever gets nothing is last
        the next time."""
        for replica in list(itertools.islice(self._hungry, _AT_ONCE)):
            if not desk.has_more():
                return
            if give(replica):
                self.discard(replica)
            elif replica in self._hungry:
                self._hungry.move_to_end(replica)
