"""Where this process may make control groups, as the kernel's own tables say; version 1 and version 2."""

from __future__ import annotations

import os
from dataclasses import dataclass

CONTROLLERS = ("cpu", "memory", "pids")
# What version 1 calls them: CPU *time* has a hierarchy of its own there.
_V1_CONTROLLERS = {"cpuacct": "cpu", "memory": "memory", "pids": "pids"}


@dataclass(frozen=True)
class Place:
    """A directory in which a group may be made, and what a group made there accounts for."""

    directory: str
    version: int
    controllers: frozenset[str]
    """Of ``CONTROLLERS``."""


def find_places() -> list[Place]:
    """The places of this process. Whether it may write there is only found out by trying."""
    try:
        with open("/proc/self/cgroup") as groups, open("/proc/self/mountinfo") as mounts:
            return places(groups.read(), mounts.read())
    except OSError:
        return []


def places(groups: str, mounts: str) -> list[Place]:
    """The places that the text of ``/proc/self/cgroup`` and ``/proc/self/mountinfo`` name.

    Version 1 has one for each hierarchy that counts something of use. Version 2 has the own group and
    its parent, the one that accounts for more first: a group with processes of its own cannot hand
    controllers down (cgroups(7), "no internal processes"), so a sibling is often the only way.
    """
    own = _own_groups(groups)
    found: list[Place] = []
    for kind, options, root, mount_point in _cgroup_mounts(mounts):
        if kind == "cgroup2":
            if (path := own.get("")) is not None:
                found += _v2_places(_directory(mount_point, root, path), mount_point)
            continue
        counted = {_V1_CONTROLLERS[name] for name in options if name in _V1_CONTROLLERS}
        path = next((own[name] for name in options if name in own), None)
        if counted and path is not None:
            found.append(Place(_directory(mount_point, root, path), 1, frozenset(counted)))
    return found


def _own_groups(groups: str) -> dict[str, str]:
    """Controller name (empty for version 2) to the path of this process's group."""
    own: dict[str, str] = {}
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        own.update(dict.fromkeys(names.split(","), path))
    return own


def _cgroup_mounts(mounts: str) -> list[tuple[str, list[str], str, str]]:
    """(file system, its options, root of the mount, mount point) of every cgroup mount (proc(5))."""
    found: list[tuple[str, list[str], str, str]] = []
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, *rest = after.split() or [""]
        fields = before.split()
        if kind in ("cgroup", "cgroup2") and rest and len(fields) > 4:
            root, mount_point = (text.encode().decode("unicode_escape") for text in fields[3:5])
            found.append((kind, rest[-1].split(","), root, mount_point))
    return found


def _directory(mount_point: str, root: str, path: str) -> str:
    """The directory of group ``path`` below a mount that shows the hierarchy from ``root`` on.

    A container may see its group as the root of the mount, though its path is told from the host's.
    """
    inside = os.path.relpath(path, root)
    return mount_point if inside.startswith("..") else os.path.normpath(os.path.join(mount_point, inside))


def _v2_places(own: str, mount_point: str) -> list[Place]:
    candidates = [own] if own == mount_point else [own, os.path.dirname(own)]
    found: list[Place] = []
    for directory in candidates:
        try:
            with open(os.path.join(directory, "cgroup.subtree_control")) as file:
                handed_down = set(file.read().split())
        except OSError:
            continue
        # CPU time is counted for every group, with or without the controller.
        found.append(Place(directory, 2, frozenset({"cpu"} | (handed_down & set(CONTROLLERS)))))
    return sorted(found, key=lambda place: -len(place.controllers))
