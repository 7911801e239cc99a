"""A rollout replica as the flow sees it, and which process may act under its name."""

from __future__ import annotations

from msgspec import Struct, field

from whetstone.flow.refusal import FlowRefusal

TAKEOVER_S = 30.0
"""A process that says nothing for so long, while another one asks under its name, has lost the name.

A process that works asks again sooner, for no answer is waited for so long."""


class Member(Struct):
    """``heard``: when it last said something. ``room``: for how many prompts it has room in all.

    versions: of the weights that it serves, by model. load: what it says of itself. incarnation: the process
    that acts under this name, None while none has said so. cut: whether its connection broke. rivals: other
    processes that ask under this name, and since when.
    """

    heard: float
    room: int = 0
    versions: dict[str, int] = field(default_factory=dict[str, int])
    load: dict[str, float] = field(default_factory=dict[str, float])
    incarnation: str | None = None
    cut: bool = False
    rivals: dict[str, float] = field(default_factory=dict[str, float])

    def hear(self, now: float, room: int, versions: dict[str, int], load: dict[str, float]) -> None:
        """Note what it says."""
        self.heard, self.room, self.versions, self.load = now, room, versions, load

    def is_played_by(self, incarnation: str) -> bool:
        """Whether a process may act under this name."""
        return self.incarnation in (None, incarnation)

    def admit(self, name: str, incarnation: str, now: float) -> bool:
        """Let a process act under this name, if no other one does. False: ask again, it is not known yet.

        A process that was started again takes its name back at once when the old connection broke, and else
        after ``TAKEOVER_S`` of silence. Raises FlowRefusal when the other process says something meanwhile.
        """
        if not self.is_played_by(incarnation):
            since = self.rivals.setdefault(incarnation, now)
            if self.heard > since:
                del self.rivals[incarnation]
                raise FlowRefusal(
                    "name",
                    f"another process is the replica `{name}`; give each replica a name of its own "
                    "(`whetstone role rollout --name NAME`), or leave the name out",
                )
            if not self.cut and now - since <= TAKEOVER_S:
                return False
            self.rivals.clear()
        self.incarnation, self.cut = incarnation, False
        return True
