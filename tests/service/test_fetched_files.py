"""Files that /run_code brings back: only those that were asked for, whatever the program writes instead."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from whetstone.core.errors import SandboxUnavailable
from whetstone.judge import Judge
from whetstone.judge.languages.toolchains import runs_here
from whetstone.judge.running import fetched_files
from whetstone.judge.workers.wire import RunReply, RunTask
from whetstone.sandbox import Tier
from whetstone.sandbox.execute import unpack_files

ABSENT = (1 << 64) - 1
FORGE = """
import json, os, struct
record = {record}
for fd in range(3, 64):
    try:
        view = memoryview(record)
        while view:
            view = view[os.write(fd, view):]
    except OSError:
        pass
os._exit(0)
"""
# What a program may write in place of the harness that runs it: Python expressions for bytes.
RECORDS = {
    "another name": "json.dumps([['../../evil', 1], ['ok', 1]]).encode() + b'\\nxx'",
    "an absolute name": "json.dumps([['/etc/cron.d/evil', 1]]).encode() + b'\\nx'",
    "the name twice": "json.dumps([['ok', 1], ['ok', 1]]).encode() + b'\\nxx'",
    "a negative size": "json.dumps([['ok', 4], ['evil', -4]]).encode() + b'\\nabcd'",
    "nested without end": "b'[' * 100_000",
    "very many entries": "b'[' + b'[],' * 1_000_000 + b'[]]\\n'",
    "more sizes than names": "struct.pack('<3Q', 1, 1, 1) + b'abc'",
    "a size beyond the data": "struct.pack('<Q', 1 << 40) + b'abc'",
    "sizes that wrap around": "struct.pack('<2Q', (1 << 64) - 2, 3) + b'a'",
    "less than the sizes": "b'abc'",
}


@pytest.fixture(scope="module", params=[tier.label for tier in Tier])
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    try:
        made = Judge(1, tier=request.param)
    except SandboxUnavailable as refused:
        pytest.skip(str(refused))
    with made:
        yield made


def ran(judge: Judge, source: str, fetch: list[str], language: str = "python") -> RunReply:
    task = RunTask(language, source, b"", 20.0, 512 << 20, 1 << 20, fetch=fetch)
    return judge.run(task).result()


@pytest.mark.process
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
def test_a_forged_list_brings_back_no_other_name(judge: Judge, record: str) -> None:
    found = ran(judge, FORGE.format(record=record), ["ok"])
    assert (found.fault, found.wrong) == ("", "")
    assert [name for name, _ in found.files] in ([], ["ok"])
    honest = ran(judge, "open('ok', 'w').write('done')", ["none", "ok"])
    assert honest.files == [("ok", b"done")]


@pytest.mark.process
def test_a_program_that_forges_changes_its_own_files_alone(judge: Judge) -> None:
    found = ran(judge, FORGE.format(record="struct.pack('<2Q', 2, 3) + b'aabbb'"), ["one", "two"])
    assert found.files in ([], [("one", b"aa"), ("two", b"bbb")])


@pytest.mark.process
@pytest.mark.skipif(not runs_here("cpp"), reason="no C++ compiler")
def test_a_compiled_program_forges_no_list_either(judge: Judge) -> None:
    source = """
#include <unistd.h>
#include <fstream>
int main() {
    std::ofstream("ok") << "done";
    for (int fd = 3; fd < 64; fd++)
        if (write(fd, "[[\\"../../evil\\", 1]]\\nx", 22) < 0) continue;
}
"""
    found = ran(judge, source, ["ok"], "cpp")
    refused = "without namespaces" in found.wrong
    assert refused or found.files == [("ok", b"done")]


def test_sizes_that_do_not_add_up_are_no_files() -> None:
    pack = struct.pack
    assert fetched_files(pack("<2Q", ABSENT, 2) + b"ab", ["a", "b"]) == [("b", b"ab")]
    assert fetched_files(pack("<2Q", 0, ABSENT), ["a", "b"]) == [("a", b"")]
    for said in (b"", b"x" * 15, pack("<2Q", 1, 1) + b"a", pack("<2Q", ABSENT - 1, 3) + b"a"):
        assert fetched_files(said, ["a", "b"]) == []


@pytest.mark.parametrize(
    "line",
    [
        '[["../main",1]]',
        '[["/main",1]]',
        '[["a/../main",1]]',
        '[["a//main",1]]',
        '[["other",1]]',
        '[["main",1],["main",0]]',
        '[["main",-1],["b/main",2]]',
        '[["main",1.0]]',
        '[["main",true]]',
        '[["main",1,1]]',
        '{"main":1}',
        "[" * 100_000,
        "[" + "[]," * 500_000 + "[]]",
    ],
)
def test_a_compiler_returns_only_requested_files(line: str) -> None:
    with pytest.raises(ValueError, match=r"packed files|was not requested"):
        unpack_files(line.encode() + b"\nx", ["main"])


def test_what_a_compiler_was_asked_for_is_handed_out() -> None:
    made = unpack_files(b'[["A.class",1],["p/B.class",2]]\nabb', ["*.class"])
    assert [(file.name, file.data) for file in made] == [("A.class", b"a"), ("p/B.class", b"bb")]
    assert len(unpack_files(b'[["cache/ab/x",1]]\nx', ["cache/*/*"])) == 1
