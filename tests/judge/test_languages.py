"""Languages beyond Python: every verdict, compiling once, and what a compiled program can reach."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whetstone.judge.languages.toolchains as toolchains
from tests.beside import data_beside
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.core.errors import UserError
from whetstone.core.problem import Limits, StdinCase, StdinTests
from whetstone.judge import Judge, Judgement, Problem, Program, Verdict
from whetstone.judge.extract import extract_program
from whetstone.judge.languages.table import LANGUAGES, java_names, language_named
from whetstone.judge.languages.toolchains import check_tier, runs_here
from whetstone.sandbox import Tier

DATA = data_beside(__file__)
DESCRIBED: dict[str, dict[str, Any]] = DATA["languages"]
PROGRAMS: dict[str, str] = {language: described["program"] for language, described in DESCRIBED.items()}
GENEROUS = Limits(cpu_s=10.0, memory_mb=1024, output_mb=16)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A judge with a cache of its own, so that what is compiled here was not compiled before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with Judge(workers=2) as judge:
            yield judge


def needs(name: str, judge: Judge | None = None) -> None:
    """Skip where a language's tools are missing, or the judge's tier cannot hold its programs."""
    if not runs_here(name):
        pytest.skip(f"no {name} on this machine: {LANGUAGES[name].install}")
    if judge is not None and not runs_here(name, judge.isolation):
        pytest.skip(f"the tier {judge.isolation} cannot run {name}: {LANGUAGES[name].needs_namespaces}")


def stdin_problem(*cases: tuple[str, str], limits: Limits = GENEROUS) -> Problem:
    tests = StdinTests(cases=[StdinCase(input=given, output=output) for given, output in cases])
    return Problem(id="languages", statement="", tests=tests, limits=limits)


def judged(
    judge: Judge, language: str, source: str, *cases: tuple[str, str], limits: Limits = GENEROUS
) -> Judgement:
    return judge.judge(stdin_problem(*(cases or (("", ""),)), limits=limits), Program(language, source))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("language", PROGRAMS)
def test_honest_programs_are_accepted(judge: Judge, language: str) -> None:
    """Fast input, a megabyte of output, recursion as deep as memory allows, and threads."""
    needs(language, judge)
    count = 2_000 if language == "bash" else 100_000
    depth = DESCRIBED[language].get("depth", 1_000_000)
    numbers = "".join(f"{i}\n" for i in range(count))
    lines = ("0" * 99 + "7\n") * (count // 10)
    cases = [
        (f"sum {count}\n{numbers}", f"{count * (count - 1) // 2}\n"),
        (f"flood {count // 10}\n", lines),
        (f"recurse {depth}\n", f"{depth}\n"),
    ]
    if DESCRIBED[language].get("threads", True):
        cases.append(("threads 0\n", "500500\n"))
    judgement = judged(judge, language, PROGRAMS[language], *cases)
    assert judgement.accepted, [(case.verdict, case.reason) for case in judgement.cases]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("language", PROGRAMS)
def test_every_way_to_fail_has_its_verdict(judge: Judge, language: str) -> None:
    needs(language, judge)
    cases = [("crash 0\n", ""), ("flood 40000\n", ""), ("hog 0\n", ""), ("sum 0\n", "7\n")]
    small = Limits(cpu_s=30.0, memory_mb=128, output_mb=1)
    found = judged(judge, language, PROGRAMS[language], *cases, limits=small)
    verdicts = [case.verdict for case in found.cases]
    expected = [Verdict.RUNTIME_ERROR, Verdict.OUTPUT_LIMIT, Verdict.MEMORY_LIMIT, Verdict.WRONG_ANSWER]
    assert verdicts == expected, [(case.verdict, case.reason) for case in found.cases]
    brief = Limits(cpu_s=0.3, memory_mb=1024)
    spin = judged(judge, language, PROGRAMS[language], ("spin 0\n", ""), limits=brief)
    assert spin.verdict is Verdict.TIME_LIMIT, spin.reason


@pytest.mark.drawn(2)
@pytest.mark.parametrize("language", PROGRAMS)
def test_the_reason_of_a_compile_error_names_the_place(judge: Judge, language: str) -> None:
    needs(language, judge)
    judgement = judged(judge, language, DESCRIBED[language]["broken"])
    assert judgement.verdict is Verdict.COMPILE_ERROR
    assert "missing" in judgement.reason or "rror" in judgement.reason
    assert len(judgement.cases) == 1


def test_a_null_pointer_is_called_by_its_name(judge: Judge) -> None:
    needs("c")
    assert "SIGSEGV" in judged(judge, "c", PROGRAMS["c"], ("crash 0\n", "")).reason


@pytest.fixture
def own_gcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file to be the gcc that judges find, and an empty cache. (A sandbox has a /tmp of its own.)"""
    needs("c")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        gcc = Path(folder) / "gcc"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield gcc


def write_tool(path: Path, text: str) -> None:
    """An executable script, always of the same size and age: as far as its identity goes, the same tool."""
    path.write_text(text.ljust(200, "#") + "\n")
    path.chmod(0o755)
    os.utime(path, ns=(1, 1))


@pytest.mark.process
def test_a_program_is_compiled_once_and_then_found_by_its_content(own_gcc: Path) -> None:
    """The second judge's compiler refuses everything, but is asked for what is new alone."""
    source = '#include <stdio.h>\nint main(void) { puts("7"); return 0; }'
    write_tool(own_gcc, '#!/bin/sh\nexec /usr/bin/gcc "$@"\n')
    with Judge(workers=1) as judge:
        assert judged(judge, "c", source, ("", "7\n")).accepted
    write_tool(own_gcc, "#!/bin/sh\necho no error but a refusal\nexit 1\n")
    with Judge(workers=1) as judge:
        assert judged(judge, "c", source, ("", "7\n")).accepted
        assert "refusal" in judged(judge, "c", source + "\n", ("", "7\n")).reason


@pytest.mark.process
def test_a_damaged_product_is_made_again(own_gcc: Path, tmp_path: Path) -> None:
    source = '#include <stdio.h>\nint main(void) { puts("7"); return 0; }'
    write_tool(own_gcc, '#!/bin/sh\nexec /usr/bin/gcc "$@"\n')
    for _ in range(2):
        with Judge(workers=1) as judge:
            assert judged(judge, "c", source, ("", "7\n")).accepted
        for product in (tmp_path / "cache/whetstone/judge/products").iterdir():
            product.write_bytes(product.read_bytes()[:-1] + b"?")


@pytest.mark.process
def test_tools_that_do_not_work_are_no_verdict(own_gcc: Path) -> None:
    write_tool(own_gcc, "#!/bin/sh\necho quite broken >&2\nexit 1\n")
    with Judge(workers=1) as judge:
        judgement = judged(judge, "c", "int main(void) { return 0; }")
    assert judgement.verdict is Verdict.JUDGE_ERROR
    assert "quite broken" in judgement.reason


def test_a_missing_toolchain_is_an_error_and_no_verdict(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    toolchains._find_executable.cache_clear()
    try:
        with pytest.raises(UserError, match=r"no rustc.*install Rust.*Available languages: python"):
            judged(judge, "rust", "fn main() {}")
    finally:
        monkeypatch.undo()
        toolchains._find_executable.cache_clear()


@pytest.mark.parametrize("name", ["ruts", "pypy", "cobol"])
def test_an_unknown_language_is_an_error_that_names_the_known(judge: Judge, name: str) -> None:
    with pytest.raises(UserError, match="cpp17, cpp20, java"):
        judged(judge, name, "x")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *[("C++", "cpp17"), ("c++20", "cpp20"), ("js", "javascript"), ("golang", "go"), ("py", "python")],
        *[
            ("c++14", "cpp17"),
            ("C++11", "cpp17"),
            ("cpp14", "cpp17"),
            ("GNU C++17", "cpp17"),
            ("g++", "cpp17"),
        ],
        *[("GNU G++20 13.2 (64 bit, winlibs)", "cpp20"), ("C++ 17 (GCC 9)", "cpp17"), ("GNU C++", "cpp17")],
        *[("py3", "python"), ("pypy3", "python"), ("Python 3", "python"), ("PyPy 3-64", "python")],
        *[("python3.11", "python"), ("Python (3.8.2)", "python"), ("CPython 3", "python")],
        *[("Node.js", "javascript"), ("Node.js 15.8.0 (64bit)", "javascript"), ("node18", "javascript")],
        *[("Java 8", "java"), ("java 17 64bit", "java"), ("Go 1.22", "go"), ("Rust 1.75.0 (2021)", "rust")],
        *[("GNU C11", "c"), ("C99", "c"), ("Perl 5", "perl"), ("TypeScript 5.5", "typescript")],
    ],
)
def test_languages_go_by_their_usual_names(name: str, meant: str) -> None:
    assert language_named(name, "the program").name == meant


@pytest.mark.parametrize("name", ["Python 2", "python2.7", "PyPy 2-64", "py2", "C++23", "C#", "Java 8 " * 50])
def test_another_language_of_a_similar_name_is_unknown(name: str) -> None:
    with pytest.raises(UserError, match="the judge runs python"):
        language_named(name, "the program")


def test_a_reference_counts_by_any_name_of_its_language(judge: Judge) -> None:
    # Only a reference shows that the test needs one interpreter with the program.
    problem = {
        "id": "p",
        "statement": "",
        "tests": {"kind": "assert", "asserts": ["assert f.__code__.co_argcount == 1"], "entry_point": "f"},
        "references": [{"language": "Python 3", "source": "def f(x):\n    return x\n"}],
    }
    judged_program = judge.judge(problem, Program("python", "def f(y):\n    return y\n"))
    assert judged_program.verdict is Verdict.ACCEPTED
    assert judged_program.shared_interpreter


def test_a_program_is_found_whatever_python_is_called() -> None:
    reply = "It is easy.\n\n    def f(x):\n        return x\n\nThat is all."
    assert extract_program(reply, language="Python 3") == extract_program(reply, language="python")


def test_functions_are_called_in_python_alone(judge: Judge) -> None:
    needs("c")
    problem = {"id": "p", "statement": "", "tests": {"kind": "assert", "asserts": ["assert f() == 1"]}}
    with pytest.raises(UserError, match="kind `assert` call Python functions"):
        judge.judge(problem, Program("c", "int f(void) { return 1; }"))


@pytest.mark.parametrize(
    ("source", "file_name", "main"),
    [
        *DATA["java"],
        ("public final " * 100_000, "Main.java", "Main"),
        ("/*" * 500_000, "Main.java", "Main"),
        ('"' * 500_001 + "{" * 500_000, "Main.java", "Main"),
    ],
)
def test_java_is_put_into_the_file_that_it_asks_for(source: str, file_name: str, main: str) -> None:
    assert java_names(source) == (file_name, main)


BOMBS = DATA["bombs"]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_source_that_attacks_the_compiler_does_not_compile(judge: Judge, bomb: str) -> None:
    needs("cpp17")
    judgement = judged(judge, "cpp17", BOMBS[bomb])
    assert judgement.verdict is Verdict.COMPILE_ERROR, judgement
    assert judgement.reason
    assert "root:" not in judgement.reason


# Each line of output is a probe and the error that stopped it; "open" where nothing did.
PROBE = DATA["probe"]


@pytest.mark.parametrize("tier", ALL_TIERS)
def test_a_compiled_program_reaches_nothing(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("c")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Elsewhere a run's processes are accounted for together, and may be several.
    forks = '    say("fork", fork());\n' if tier is Tier.RESTRICTED else ""
    source = PROBE.replace("FORKS", forks).replace("CACHE", str(tmp_path / "cache/whetstone/judge"))
    skip_unless_offered(tier)
    with Judge(workers=1, tier=tier.label) as judge:
        judgement = judged(judge, "c", source, ("", "nothing like it\n"))
        assert judgement.verdict is Verdict.WRONG_ANSWER, judgement
        names = [line.split('"')[1] for line in source.splitlines() if 'say("' in line]
        stopped = "".join(f"{name} stopped\n" for name in [*names, "descriptors", "environment"])
        judgement = judged(judge, "c", source, ("", stopped))
        assert judgement.accepted, judgement.reason


def test_a_program_leaves_nothing_for_the_next_one(judge: Judge) -> None:
    needs("c")
    source = (
        '#include <stdio.h>\nint main(void) { FILE *f = fopen("left", "r"); puts(f ? "found" : "clean"); '
        'f = fopen("left", "w"); fputs("x", f); return 0; }'
    )
    assert judged(judge, "c", source, *[("", "clean\n")] * 4).accepted


def test_processes_of_a_script_end_with_it(judge: Judge) -> None:
    needs("bash", judge)
    source = "(while :; do sleep 0.01; echo late > late; done) >/dev/null 2>&1 &\nsleep 0.05\necho done"
    judgement = judged(judge, "bash", source, ("", "done\n"), ("", "done\n"))
    assert judgement.accepted, judgement.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has tools that others cannot reach")
def test_tools_that_only_root_can_reach_are_refused_where_root_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "whetstone.judge.languages.toolchains._find_executable", lambda name: str(tmp_path / name)
    )
    (tmp_path / "gcc").touch(0o755)
    tmp_path.chmod(0o700)
    with pytest.raises(UserError, match="gcc"):
        check_tier(LANGUAGES["c"], "userns", "the program")
    check_tier(LANGUAGES["c"], "root", "the program")
