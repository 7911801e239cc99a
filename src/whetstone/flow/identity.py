"""Whether two roles work for the same run: which Whetstone they are, and what their recipes say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from whetstone import __version__

PROTOCOL = 1
"""Roles of another number do not understand each other."""


class Identity(Struct, frozen=True):
    """``recipe``: a digest of each part of the recipe that all roles must agree on; the data are one."""

    recipe: dict[str, str]
    version: str = __version__
    protocol: int = PROTOCOL

    @property
    def digest(self) -> str:
        """The same for the same run, and for no other."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()

    def difference(self, other: Identity) -> str:
        """How ``other`` is not this, in words and with the way out; empty where it is."""
        if (self.version, self.protocol) != (other.version, other.protocol):
            return (
                f"the flow runs Whetstone {self.version} (protocol {self.protocol}), this role "
                f"{other.version} (protocol {other.protocol}): install the same version on all hosts"
            )
        parts = sorted(
            name
            for name in self.recipe.keys() | other.recipe.keys()
            if self.recipe.get(name) != other.recipe.get(name)
        )
        if not parts:
            return ""
        differ = ", ".join(f"`{part}`" for part in parts)
        return f"this role's recipe differs from the flow's in {differ}: start all roles from the same recipe"


def identity_of(sections: Mapping[str, object], problems: Iterable[str]) -> Identity:
    """The identity of a run: of each section (plain data) and of the ids of its problems, in their order."""
    digests = {
        name: _digest(msgspec.json.encode(value, order="deterministic")) for name, value in sections.items()
    }
    return Identity({**digests, "problems": _digest("\n".join(problems).encode(errors="replace"))})


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
