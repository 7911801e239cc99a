"""A private directory is emptied whatever a program left in it, and nothing outside is touched."""

import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from whetstone.sandbox.zygote.tmp_dir import empty_directory

names = st.sampled_from(["a", ".moved-1", ".moved-2", "b b", "ü\n", "-rf", "x" * 255])
trees = st.recursive(
    st.sampled_from(["file", "link out", "dangling", "fifo"]),
    lambda inner: st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


def plant(where: str, tree, outside: str) -> None:
    if isinstance(tree, dict):
        os.mkdir(where)
        for name, inner in tree.items():
            plant(os.path.join(where, name), inner, outside)
        os.chmod(where, 0)
    elif tree == "file":
        Path(where).write_bytes(b"x")
    elif tree == "fifo":
        os.mkfifo(where)
    else:
        os.symlink(outside if tree == "link out" else "nowhere", where)


@settings(max_examples=60, deadline=None)
@given(trees=st.dictionaries(names, trees, max_size=4))
def test_any_tree_is_removed_and_links_are_not_followed(trees, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "kept").write_text("kept")
    top = tmp_path_factory.mktemp("top")
    for name, tree in trees.items():
        plant(str(top / name), tree, str(outside))
    empty_directory(str(top))
    assert os.listdir(top) == []
    assert (outside / "kept").read_text() == "kept"


def test_depth_beyond_every_path_limit_is_removed(tmp_path):
    here = os.open(tmp_path, os.O_DIRECTORY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    empty_directory(str(tmp_path))
    assert os.listdir(tmp_path) == []
