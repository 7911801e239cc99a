"""Executing programs: what a profile allows, what a compiler's run hands out, and that nothing stays."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from whetstone.sandbox import EndReason, Profile, RunLimits, Sandbox, SandboxJob, Tier, supervise
from whetstone.sandbox.execute import (
    CommandFailure,
    File,
    NotExecuted,
    execute_job,
    execution_error,
    make_job,
    read_products,
    unpack_files,
)
from whetstone.sandbox.script import script_job

pytestmark = pytest.mark.isolation

LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20)
SHELL = ["/bin/sh", "-c"]


@pytest.fixture(scope="module")
def compiler(tier: Tier) -> Iterator[Sandbox]:
    profile = Profile("compiler", execute=True, processes=True, proc=True)
    with Sandbox({}, profile=profile, tier=tier) as sandbox:
        yield sandbox


@pytest.mark.process
def test_files_arguments_and_environment_reach_an_executed_program(compiler: Sandbox) -> None:
    script = File("tool", b'#!/bin/sh\necho "$1 $WORD $(cat in/text) $(cat)"\n')
    files = [script, File("in/text", b"file"), File("empty/", b"")]
    job = execute_job(["./tool", "argument"], files, LIMITS, environment={"WORD": "word"}, stdin=b"input")
    result = compiler.run(job)
    assert (result.stdout, result.stderr, execution_error(result.result)) == (
        b"argument word file input\n",
        b"",
        None,
    )


def test_a_missing_executable_is_a_fault_and_no_exit(compiler: Sandbox) -> None:
    assert "no-such" in (execution_error(compiler.run(execute_job(["/no-such"], [], LIMITS)).result) or "")
    with pytest.raises(NotExecuted, match="no-such"):
        read_products(compiler.run(make_job([["/no-such"]], [], ["x"], LIMITS)).result)


def test_products_come_out_as_they_were_made(compiler: Sandbox) -> None:
    command = [*SHELL, "mkdir -p a/b && tr a-z A-Z < in > a/b/x.out && cp in y.out && ln -s in z.out"]
    products = read_products(
        compiler.run(make_job([command], [File("in", b"te\0xt")], ["*.out"], LIMITS)).result
    )
    assert isinstance(products, bytes)
    assert unpack_files(products, ["*.out"]) == [File("a/b/x.out", b"TE\0XT"), File("y.out", b"te\0xt")]


def test_the_first_command_that_fails_ends_the_job_and_is_quoted(compiler: Sandbox) -> None:
    commands = [[*SHELL, "true"], [*SHELL, "echo what is wrong >&2; exit 3"], [*SHELL, "touch never"]]
    assert read_products(compiler.run(make_job(commands, [], ["*"], LIMITS)).result) == CommandFailure(
        3, "what is wrong\n"
    )


def test_a_limit_ends_all_processes_of_a_command(compiler: Sandbox) -> None:
    """The next run finds the directory its own, whatever the processes of the last would still write."""
    spin = [*SHELL, "(while :; do sleep 0.02; echo > late; done) & sleep 60"]
    limits = RunLimits(5.0, 512 << 20, 1 << 20, wall_s=0.3)
    # Starved: its time is over, and the machine was too busy to say that it had a fair share of it.
    assert compiler.run(make_job([spin], [], ["x"], limits)).ended in {
        EndReason.WALL_LIMIT,
        EndReason.STARVED,
    }
    time.sleep(0.1)
    look = [*SHELL, "sleep 0.2; test ! -e late"]
    assert isinstance(read_products(compiler.run(make_job([look], [], ["x"], LIMITS)).result), bytes)


def test_arguments_and_files_reach_a_python_program(sandbox: Sandbox) -> None:
    source = b"import sys, os\nprint(sys.argv[1:], open('in/a').read(), os.listdir('empty'), input())"
    files = {"in/a": b"text", "empty/": b""}
    result = sandbox.run(script_job(source, LIMITS, stdin=b"line", args=["x", "y"], files=files))
    assert result.stdout == b"['x', 'y'] text [] line\n", result.stderr


@pytest.mark.parametrize("source", [b"\0", b'\0{"arguments": [], "files": [], "source": 0}\nprint(1)'])
def test_a_source_that_looks_like_a_request_is_a_source(sandbox: Sandbox, source: bytes) -> None:
    result = sandbox.run(script_job(source, LIMITS))
    assert result.result.startswith(b"compile_error: ")
    assert result.stdout == b""


def test_a_link_is_standard_input_and_output(sandbox: Sandbox, compiler: Sandbox) -> None:
    asks = b"print('hello', flush=True)\nassert input() == 'HELLO'\nopen('done', 'w')"
    answers = "read line; echo $line | tr a-z A-Z"
    near, far = socket.socketpair()
    leader = sandbox.start(script_job(asks, LIMITS, link=near.detach()))
    partner = compiler.start(execute_job([*SHELL, answers], [], LIMITS, link=far.detach()))
    first, second = supervise([leader, partner])
    assert (first.exit_code, second.exit_code) == (0, 0), (first.stderr, second.stderr)


def test_profiles_name_absolute_paths() -> None:
    with pytest.raises(ValueError, match="absolute"):
        Profile("p", reads=["relative"])


def test_only_the_folder_that_a_profile_names_is_readable(tier: Tier) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        for name in ("seen", "unseen"):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "file").write_text(name)
        source = f"print(open('{folder}/seen/file').read())\nopen('{folder}/unseen/file')".encode()
        with Sandbox({}, profile=Profile("reader", reads=[f"{folder}/seen"]), tier=tier) as sandbox:
            result = sandbox.run(SandboxJob("script", source, LIMITS))
    assert result.stdout == b"seen\n"
    assert result.exit_code == 1


def test_a_compiler_returns_only_requested_files() -> None:
    for line in (
        *('[["../main",1]]', '[["/main",1]]', '[["a/../main",1]]', '[["a//main",1]]', '[["other",1]]'),
        *('[["main",1],["main",0]]', '[["main",-1],["b/main",2]]', '[["main",1.0]]', '[["main",true]]'),
        *('[["main",1,1]]', '{"main":1}', "[" * 100_000, "[" + "[]," * 500_000 + "[]]"),
    ):
        with pytest.raises(ValueError, match=r"packed files|was not requested"):
            unpack_files(line.encode() + b"\nx", ["main"])
    made = unpack_files(b'[["A.class",1],["p/B.class",2]]\nabb', ["*.class"])
    assert [(file.name, file.data) for file in made] == [("A.class", b"a"), ("p/B.class", b"bb")]
    assert len(unpack_files(b'[["cache/ab/x",1]]\nx', ["cache/*/*"])) == 1
