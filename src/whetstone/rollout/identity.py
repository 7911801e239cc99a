"""The identity of a run, which tells whether two roles belong together: Whetstone version and recipe."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct, field

import whetstone
from whetstone import __version__
from whetstone.core.problem import Problem

# Roles with different protocol numbers cannot communicate.
PROTOCOL = 3


@cache
def own_build() -> str:
    """Return a digest of this package's source files, since two builds may have the same version."""
    folder = Path(whetstone.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()[:16]


class Identity(Struct, frozen=True):
    """``recipe``: a digest of each recipe key that all roles must share, and of the problems.

    ``build``: see ``own_build``.
    """

    recipe: dict[str, str]
    version: str = __version__
    protocol: int = PROTOCOL
    build: str = field(default_factory=own_build)

    @property
    def digest(self) -> str:
        """A digest that is equal for all roles that work together, and differs for all others."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()

    @property
    def log_digest(self) -> str:
        """A digest of the run that does not depend on the build, so that another build of the same version
        can continue its log."""
        # A new build of the same version reads the same log.
        run = (self.recipe, self.version, self.protocol)
        return hashlib.sha256(msgspec.json.encode(run, order="deterministic")).hexdigest()

    def difference(self, other: Identity) -> str:
        """Describe how ``other`` differs, with the remedy; empty if it is equal."""
        if (self.version, self.protocol) != (other.version, other.protocol):
            return (
                f"the flow runs Whetstone {self.version} (protocol {self.protocol}), this role "
                f"{other.version} (protocol {other.protocol}): install the same version on all hosts"
            )
        if self.build != other.build:
            return (
                f"the flow runs build {self.build} of Whetstone {self.version}, this role build "
                f"{other.build}: their source files differ; install the same package on all hosts"
            )
        parts = sorted(
            name
            for name in self.recipe.keys() | other.recipe.keys()
            if self.recipe.get(name) != other.recipe.get(name)
        )
        if not parts:
            return ""
        differ = ", ".join(f"`{part}`" for part in parts)
        return (
            f"this role's recipe or data differs from the flow's in {differ}: start all roles from the same "
            "recipe and the same files of problems"
        )


def identity_of(sections: Mapping[str, object], problems: Iterable[Problem]) -> Identity:
    """Return the identity of a run from its recipe sections (plain data) and its problems.

    The digest of a problem field covers all problems, in order.
    """
    digests = {
        key: _digest(msgspec.json.encode(value, order="deterministic")) for key, value in _keys("", sections)
    }
    fields = {name: hashlib.sha256() for name in Problem.__struct_fields__}
    for problem in problems:
        for name, digest in fields.items():
            value = getattr(problem, name)
            given = None if value is msgspec.UNSET else value
            digest.update(msgspec.json.encode(given, order="deterministic") + b"\n")
    return Identity(digests | {f"problems.{name}": d.hexdigest()[:16] for name, d in fields.items()})


def _keys(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield every nested key, joined with dots, and its value."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _keys(f"{prefix}{name}.", cast("Mapping[str, object]", value))
        else:
            yield prefix + name, value


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
