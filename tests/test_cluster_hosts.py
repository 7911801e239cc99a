"""The host file of ``whetstone cluster``, and what is refused before any host is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.cluster.hosts import Host, read_hosts
from whetstone.errors import UserError


def file(folder: Path, text: str) -> str:
    path = folder / "hosts"
    path.write_text(text)
    return str(path)


def test_a_host_file_is_read_as_mpi_and_ssh_write_it(tmp_path: Path) -> None:
    text = "# training\nnode-1 slots=8\n\nroot@10.0.0.2:2222   # the second\n[fe80::1]:22\nlocalhost\n"
    found = read_hosts(file(tmp_path, text))
    assert found == [
        Host("node-1"),
        Host("10.0.0.2", "root", 2222),
        Host("fe80::1", "", 22),
        Host("localhost"),
    ]
    assert [host.is_here for host in found] == [False, False, False, True]
    assert found[1].target == "root@10.0.0.2"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\n-oProxyCommand=touch\n", ":2: '-oProxyCommand=touch' is no host"),
        ("a\nb;rm\n", ":2: 'b;rm' is no host"),
        ("a\nroot@a\n", ":2: a is there twice"),
        ("# nobody\n", "no host in it"),
    ],
)
def test_what_is_no_host_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError) as refused:
        read_hosts(file(tmp_path, text))
    assert says in str(refused.value)


@pytest.mark.process
def test_a_python_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "start", file(tmp_path, "localhost"), "--python", "/nowhere/python"]) == 2
    assert "localhost: the Python /nowhere/python is not on this machine" in capsys.readouterr().err
    assert main(["cluster", "stop", str(tmp_path / "none")]) == 2
    assert "one host a line" in capsys.readouterr().err
