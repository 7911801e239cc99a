"""Files of a dataset from a hub: a real server on loopback, connections that break, and what may fail."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.data.hub_server import COMMIT, HubServer, serving
from whetstone.core.errors import UserError
from whetstone.data.sources.downloads import Hub

pytestmark = pytest.mark.process

LARGE = json.dumps({"x": "y" * 300_000}).encode()
FILES = {
    "README.md": b"# set",
    "data/train-1.jsonl": LARGE,
    "data/train-0.jsonl": b"{}\n",
    "data/test.jsonl": b"1",
}
TRAIN = ("data/train-*",)


@pytest.fixture
def server():
    with serving(dict(FILES)) as running:
        yield running


def hub_of(server: HubServer, tmp_path: Path) -> Hub:
    return Hub(endpoint=server.url, cache=tmp_path)


def test_files_of_a_split_come_in_order_at_the_commit(server: HubServer, tmp_path: Path) -> None:
    hub = hub_of(server, tmp_path)
    found = hub.find("me/set", None, TRAIN)
    assert (found.commit, found.size) == (COMMIT, len(LARGE) + 3)
    assert [path.read_bytes() for path in hub.download(found)] == [b"{}\n", LARGE]
    assert {name for name, _ in server.ranges} == {"data/train-0.jsonl", "data/train-1.jsonl"}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """``huggingface_hub`` keeps whole chunks of what arrived, of 10 MiB each: too much for a test."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 50_000)


@pytest.mark.usefixtures("small_chunks")
def test_a_broken_download_continues_at_its_last_byte(server: HubServer, tmp_path: Path) -> None:
    server.break_after["data/train-1.jsonl"] = [100_000]
    hub = hub_of(server, tmp_path)
    paths = list(hub.download(hub.find("me/set", "main", TRAIN)))
    assert paths[1].read_bytes() == LARGE
    ranges = [asked for name, asked in server.ranges if name == "data/train-1.jsonl"]
    assert ranges == [None, "bytes=100000-"]


def test_an_interrupted_download_resumes_with_the_first_missing_file(
    server: HubServer, tmp_path: Path
) -> None:
    hub = hub_of(server, tmp_path)
    found = hub.find("me/set", None, TRAIN)
    next(hub.download(found))
    server.ranges.clear()
    assert [path.read_bytes() for path in hub.download(found)] == [b"{}\n", LARGE]
    assert {name for name, _ in server.ranges} == {"data/train-1.jsonl"}


def test_downloaded_files_are_not_downloaded_again_and_are_found_offline(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = hub_of(server, tmp_path)
    first = list(hub.download(hub.find("me/set", None, TRAIN)))
    server.ranges.clear()
    assert list(hub.download(hub.find("me/set", None, TRAIN))) == first
    assert server.ranges == []
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    server.shutdown()
    offline = hub_of(server, tmp_path)
    assert list(offline.download(offline.find("me/set", None, TRAIN))) == first
    with pytest.raises(UserError, match=r"a file is not in the cache, and HF_HUB_OFFLINE is set: unset it"):
        list(offline.download(offline.find("me/set", None, ("data/test*",))))
    with pytest.raises(UserError, match=r"me/other at main was not downloaded before, and HF_HUB_OFFLINE"):
        offline.find("me/other", None, TRAIN)


def test_a_short_hash_names_its_commit(server: HubServer, tmp_path: Path) -> None:
    assert hub_of(server, tmp_path).find("me/set", COMMIT[:7], TRAIN).commit == COMMIT
    with pytest.raises(UserError, match="me/set has no revision abcdef0: see"):
        hub_of(server, tmp_path).find("me/set", "abcdef0", TRAIN)


def test_missing_sets_files_and_revisions_are_reported_with_the_remedy(
    server: HubServer, tmp_path: Path
) -> None:
    local = "or give local files"
    for repo, revision, globs, words in (
        ("me/gated", None, TRAIN, f"me/gated is gated: accept its terms at .* HF_TOKEN, {local}"),
        ("me/absent", None, TRAIN, f"no dataset me/absent at .*, or it is private: .* {local}"),
        ("me/set", "abc", TRAIN, rf"me/set has no revision abc: see .* name another \(SOURCE@REV\), {local}"),
        ("me/set", None, ("*.parquet",), r"no file matches \*\.parquet; found: README.md.* name another rev"),
    ):
        with pytest.raises(UserError, match=words):
            hub_of(server, tmp_path).find(repo, revision, globs)


def test_a_missing_network_is_reported_with_the_remedy(tmp_path: Path) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        with pytest.raises(UserError, match=r"me/set: download from http://127.*HF_ENDPOINT names a mirror"):
            Hub(endpoint=endpoint, cache=tmp_path).find("me/set", None, TRAIN)


def test_a_silent_hub_is_an_error_with_the_way_out(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whetstone.data.sources.downloads._LISTING_TIMEOUT_S", 0.2)
    server.stalled.add("the list")
    with pytest.raises(UserError, match=r"me/set: download from http.* failed: .*HF_ENDPOINT names a mirror"):
        hub_of(server, tmp_path).find("me/set", None, TRAIN)


def test_a_download_with_another_hash_than_the_hub_is_deleted(server: HubServer, tmp_path: Path) -> None:
    server.said_sha256 = "0" * 64
    hub = hub_of(server, tmp_path)
    found = hub.find("me/set", None, TRAIN)
    for _ in range(2):  # it is not kept: the second time it is brought and refused again
        with pytest.raises(
            UserError, match=r"data/train-1.jsonl: the download from http.* does not have the SHA-256"
        ):
            list(hub.download(found))
    server.said_sha256 = ""
    hub = hub_of(server, tmp_path)
    assert [path.read_bytes() for path in hub.download(hub.find("me/set", None, TRAIN))] == [b"{}\n", LARGE]
