"""Workspaces for tests, in every way and on every isolation tier that this machine offers."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.tiers import skip_unless_offered
from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox import (
    Change,
    RunLimits,
    Tier,
    TreeEntry,
    Workspace,
    WorkspaceBase,
    WorkspaceDiff,
    WorkspaceLimits,
    Workspaces,
)

LIMITS = RunLimits(cpu_s=20.0, memory_bytes=512 << 20, output_bytes=1 << 20)
SMALL = WorkspaceLimits(disk_bytes=8 << 20, disk_entries=300, diff_bytes=1 << 20, diff_entries=200)


@contextlib.contextmanager
def folder_for_workspaces() -> Generator[Path]:
    """A folder to which every user can walk, and which only its owner can list."""
    made = Path(tempfile.mkdtemp(prefix="whetstone-test-", dir="/var/tmp"))
    made.chmod(0o711)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def workspaces_at(root: Path, tier: Tier, way: str, limits: WorkspaceLimits = SMALL) -> Workspaces:
    """Open workspaces, or skip the test if this machine does not offer them."""
    skip_unless_offered(tier)
    if tier is Tier.RESTRICTED and way == "overlay":
        pytest.skip("this tier has no mounts")
    try:
        return Workspaces(root, tier=tier, way=way, limits=limits)
    except SandboxUnavailable as refused:
        pytest.skip(str(refused))


def make_base(root: Path) -> WorkspaceBase:
    """Store a small base: files, an executable one, folders, and links."""
    with tempfile.TemporaryDirectory() as made:
        source = Path(made)
        (source / "package" / "inner").mkdir(parents=True)
        (source / "empty").mkdir()
        (source / "package" / "code.py").write_text("answer = 41\n")
        (source / "package" / "inner" / "deep.txt").write_text("deep\n")
        (source / "readme").write_text("read me\n")
        (source / "tool").write_text("#!/bin/sh\necho tool\n")
        (source / "tool").chmod(0o755)
        os.symlink("readme", source / "link")
        os.symlink("package", source / "folder-link")
        return WorkspaceBase.from_folder(root, source)


def sh(workspace: Workspace, script: str) -> str:
    """Run a script that must succeed, and return what it printed."""
    result = workspace.run(["sh", "-c", script], limits=LIMITS)
    assert (result.ended, result.exit_code) == ("exited", 0), result
    return result.stdout.decode()


def apply(workspace: Workspace, diff: WorkspaceDiff) -> None:
    """Make the changes of a diff by one command."""
    lines = [
        f"rm -rf -- {shlex.quote(change.path)}"
        for change in reversed(diff.changes)
        if change.change is Change.DELETED
    ]
    made = [change for change in diff.changes if change.change is not Change.DELETED]
    for change in made:
        path = shlex.quote(f"./{change.path}")
        if change.entry is TreeEntry.FOLDER:
            lines.append(f"rm -f {path}; mkdir {path}")
        elif change.entry is TreeEntry.LINK:
            lines.append(f"rm -rf {path}; ln -s {shlex.quote(change.target)} {path}")
        else:
            # Not every tier lets a command change modes, so the file is a copy of one with this mode.
            copied = f"cp /bin/sh {path};" if change.executable else ""
            lines.append(f"rm -rf {path}; {copied} head -c {len(change.data)} > {path}")
    data = b"".join(change.data for change in made)
    result = workspace.run(["sh", "-c", "\n".join(lines)], limits=LIMITS, stdin=data)
    assert (result.ended, result.stderr) == ("exited", b""), result


def told(workspace: Workspace) -> list[str]:
    """Return the diff as lines: ``+`` added, ``~`` changed, ``-`` deleted; a kind, a path, what it holds."""
    signs = {"added": "+", "changed": "~", "deleted": "-"}
    lines: list[str] = []
    for change in workspace.diff().changes:
        mode = "x" if change.executable else ""
        holds = f" -> {change.target}" if change.target else f" = {change.data!r}" if change.data else ""
        lines.append(f"{signs[change.change]}{mode} {change.entry} {change.path}{holds}")
    return lines
