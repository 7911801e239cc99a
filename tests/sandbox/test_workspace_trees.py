"""Any sequence of file operations gives the same diff in every way and on every tier, and can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sandbox.workspaces import LIMITS, apply, folder_for_workspaces, make_base, workspaces_at
from tests.tiers import refusal
from whetstone.sandbox import Tier, Workspace, WorkspaceBase, Workspaces

pytestmark = pytest.mark.process

PATHS = st.sampled_from(
    [
        *("package", "package/code.py", "package/inner", "package/inner/deep.txt", "empty", "readme", "tool"),
        *("link", "folder-link", "a", "a/b", "a/b/c", "package/new", "empty/new", "package/inner/x y"),
    ]
)
HARD_LINK = "ln '{0}' '{1}'"
# By way of another folder: what a copy of a folder into itself leaves depends on the order of its files.
COPY = "c=$(mktemp -d) && cp -r '{0}' $c/x && cp -r $c/x '{1}'"
OPERATIONS = st.one_of(
    *(
        st.tuples(st.sampled_from([template]), PATHS, PATHS)
        for template in (
            *("rm -rf '{0}'", "mkdir '{0}'", "mkdir -p '{0}'", "echo '{1}' > '{0}'", "echo more >> '{0}'"),
            *("mv '{0}' '{1}'", COPY, HARD_LINK, "ln -sfn '{1}' '{0}'", "rmdir '{0}'"),
            *("cp tool '{0}'", "cat '{1}' > '{0}'", "rm '{0}'; echo 'read me' > '{0}'"),
        )
    )
)
SCRIPTS = st.lists(OPERATIONS, min_size=1, max_size=14)
LISTING = """
find . | LC_ALL=C sort
find . -type f | LC_ALL=C sort | while read f; do echo "$f"; test -x "$f" && echo x; cat "$f"; done
find . -type l | LC_ALL=C sort | while read f; do readlink "$f"; done
"""


@pytest.fixture(scope="module")
def every_kind() -> Iterator[list[tuple[Workspaces, WorkspaceBase]]]:
    with ExitStack() as stack:
        kinds: list[tuple[Workspaces, WorkspaceBase]] = []
        for tier in Tier:
            for way in ("overlay", "copy"):
                if refusal(tier) or (tier is Tier.RESTRICTED and way == "overlay"):
                    continue
                root = stack.enter_context(folder_for_workspaces())
                workspaces = stack.enter_context(workspaces_at(root, tier, way))
                kinds.append((workspaces, make_base(root)))
        yield kinds


def run(workspace: Workspace, script: str) -> bytes:
    result = workspace.run(["sh", "-c", script], limits=LIMITS)
    assert result.ended == "exited", result
    return result.stdout


def check(kinds: list[tuple[Workspaces, WorkspaceBase]], operations: list[tuple[str, str, str]]) -> None:
    half = len(operations) // 2
    first, second = (
        "\n".join(f"({template.format(*paths)}) 2>/dev/null" for template, *paths in part) + "\ntrue"
        for part in (operations[:half], operations[half:])
    )
    # A fork separates the names of a file.
    linked = any(template == HARD_LINK for template, *_ in operations[:half])
    seen: set[object] = set()
    for workspaces, base in kinds:
        with workspaces.open(base) as workspace, workspaces.open(base) as other:
            run(workspace, first)
            with workspace.fork() as fork:
                before = fork.diff()
                run(workspace, second)
                diff, tree = workspace.diff(), run(workspace, LISTING)
                assert fork.diff() == before
                apply(other, diff)
                assert other.diff().changes == diff.changes
                run(fork, second)
                if not linked:
                    assert (fork.diff(), run(fork, LISTING)) == (diff, tree)
                if not diff.refused:
                    assert run(other, LISTING) == tree
                    assert other.snapshot() == workspace.snapshot()
            seen.add((diff, tree))
    assert len(seen) == 1


@settings(max_examples=6, deadline=None)
@given(operations=SCRIPTS)
def test_the_ways_and_tiers_agree(
    every_kind: list[tuple[Workspaces, WorkspaceBase]], operations: list[tuple[str, str, str]]
) -> None:
    check(every_kind, operations)


@pytest.mark.extended
@settings(max_examples=60, deadline=None)
@given(operations=SCRIPTS)
def test_the_ways_and_tiers_agree_in_a_longer_search(
    every_kind: list[tuple[Workspaces, WorkspaceBase]], operations: list[tuple[str, str, str]]
) -> None:
    check(every_kind, operations)
