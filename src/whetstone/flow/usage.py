"""How much of the time the roles of a run worked, and how much of that beside each other, by the flow."""

from __future__ import annotations

from msgspec import Struct


class Usage(Struct):
    """Seconds so far, on the flow's clock.

    wall: since the first look. replicas: of all replicas together, from joining on; sampling: with prompts in
    hand. training: while a trainer had a batch, until it published what it made of it. both: while a trainer
    had one and some replica had prompts.
    """

    wall: float = 0.0
    replicas: float = 0.0
    sampling: float = 0.0
    training: float = 0.0
    both: float = 0.0
    _last: float | None = None

    def look(self, now: float, *, replicas: int, sampling: int, training: bool) -> None:
        """Until ``now`` it was as it is: ``sampling`` of the ``replicas`` had prompts."""
        passed = 0.0 if self._last is None else now - self._last
        self._last = now
        self.wall += passed
        self.replicas += replicas * passed
        self.sampling += sampling * passed
        self.training += passed if training else 0.0
        self.both += passed if training and sampling else 0.0

    def figures(self) -> dict[str, float]:
        """Plain data."""
        return {
            "wall": self.wall,
            "replicas": self.replicas,
            "sampling": self.sampling,
            "training": self.training,
            "both": self.both,
        }


def shares(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    """Of the time between two looks: ``replicas_busy``, ``trainer_busy`` and ``overlap``, each 0 to 1.

    Empty where there was none, or the flow was started anew between them.
    """
    passed = {name: now[name] - before.get(name, 0.0) for name in now}
    if passed["wall"] <= 0 or min(passed.values()) < 0:
        return {}
    return {
        "replicas_busy": passed["sampling"] / passed["replicas"] if passed["replicas"] else 0.0,
        "trainer_busy": passed["training"] / passed["wall"],
        "overlap": passed["both"] / passed["wall"],
    }
