"""``whetstone doctor`` reports what works, what is missing and the remedy, and imports little for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from whetstone.cli import doctor_survey
from whetstone.cli.doctor_page import WIDTH, page
from whetstone.cli.doctor_survey import Accelerators, Survey, probe_judge
from whetstone.cli.main import main
from whetstone.core.verdict import Verdict
from whetstone.judge.environments.environment import PackageEnvironment
from whetstone.judge.languages.toolchains import Availability
from whetstone.sandbox.probe import ProbeResult

LONG = "/a/folder/" + "with-a-very-long-name/" * 12 + "tool"
PACKAGES = ["numpy", "pandas", "scipy", "sympy", "networkx", "sortedcontainers"]
ENVIRONMENT = PackageEnvironment("default", "default:0123456789", {"numpy": "2.0"}, PACKAGES, [], [], [])
SURVEY = Survey(
    full=False,
    probes=[
        ProbeResult("landlock", True, "interface version 7"),
        ProbeResult("tier root", True, "started, and ran a program"),
        ProbeResult("tier userns", False, f"new root: {LONG}"),
        ProbeResult("judge", True, "correct program: accepted"),
    ],
    languages=[
        Availability("python", True, "3.11"),
        Availability("rust", True, LONG),
        Availability("go", False, "no go: install Go (apt install golang-go)"),
    ],
    environments=[ENVIRONMENT],
    missing={"train": ["torch", "transformers"], "serve": []},
    accelerators=Accelerators([], None),
    bf16=["avx512_bf16"],
)


def sections(survey: Survey) -> tuple[str, str, str]:
    """What works, what is missing, and the conclusion, each as one line."""
    text = " ".join(" ".join(page(survey)).split())
    works, _, rest = text.partition("What is missing")
    missing, _, conclusion = rest.partition("Conclusion: ")
    return works, missing, conclusion


@pytest.mark.parametrize("full", [False, True])
def test_no_line_is_longer_than_80_columns_whatever_the_paths(full: bool) -> None:
    lines = page(replace(SURVEY, full=full))
    assert max(map(len, lines)) <= WIDTH == 80
    assert LONG[-40:] in "".join(line.strip() for line in lines)


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    works, missing, conclusion = sections(SURVEY)
    assert "not installed: torch, transformers" in missing
    assert "Remedy: pip install -c constraints.txt -e '.[train]'" in missing
    assert "serve" in works
    assert "serve" not in missing
    assert "without the extra `train`" in conclusion


def test_a_missing_language_and_a_missing_tier_have_a_remedy() -> None:
    works, missing, _ = sections(SURVEY)
    assert "Remedy: install Go (apt install golang-go)" in missing
    assert "sysctl -w kernel.unprivileged_userns_clone=1" in missing
    assert "tiers: root judge" in works


def test_a_missing_package_of_programs_has_a_remedy() -> None:
    bare = PackageEnvironment("default", "default:0", {}, ["numpy"], [], [], [])
    _, missing, _ = sections(replace(SURVEY, environments=[bare]))
    assert "programs cannot import pandas" in missing
    assert "Remedy: pip install -c constraints.txt -e '.[programs]'" in missing


def test_an_accelerator_that_torch_cannot_use_is_missing() -> None:
    found = Accelerators(["NVIDIA H100"], "2.13.0+cpu", "torch 2.13.0+cpu is built for the CPU only")
    works, missing, conclusion = sections(replace(SURVEY, missing={"train": []}, accelerators=found))
    assert "H100" not in works
    assert "built for the CPU only" in missing
    assert "trained on the CPU" in conclusion
    _, _, conclusion = sections(replace(SURVEY, missing={}, accelerators=replace(found, fault="")))
    assert "trained on NVIDIA H100" in conclusion


def test_an_unsafe_machine_is_reported_with_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leaks = ProbeResult("a program cannot open a socket", False, "<socket>")
    survey = replace(SURVEY, probes=[*SURVEY.probes, leaks])
    monkeypatch.setattr(doctor_survey, "examine", lambda: survey)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "cannot be judged safely here" in said
    assert "a program cannot open a socket: <socket>" in said
    monkeypatch.setattr(doctor_survey, "examine", lambda: replace(SURVEY, probes=[]))
    assert main(["doctor"]) == 1


@pytest.mark.parametrize(
    "answer", [lambda _: Verdict.ACCEPTED, lambda _: Verdict.WRONG_ANSWER, lambda _: Verdict.JUDGE_ERROR]
)
def test_a_judge_that_does_not_tell_programs_apart_is_found(answer: Callable[[Any], Verdict]) -> None:
    judge: Any = SimpleNamespace(
        isolation="root", judge=lambda problem, program: SimpleNamespace(verdict=answer(program))
    )
    assert not probe_judge(judge).ok


@pytest.mark.process
def test_the_default_proves_the_essentials_and_full_runs_every_probe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["doctor", "--json"])
    quick = json.loads(capsys.readouterr().out)
    assert quick["safe"] == (status == 0)
    probes = {found["name"]: found for found in quick["probes"]}
    assert {"tier root", "tier userns", "tier restricted", "landlock", "limits under load"} <= probes.keys()
    assert "exits with status 0: runtime_error" in probes["judge"]["detail"]
    assert "cpu limit" not in probes
    assert {found["name"]: found["available"] for found in quick["languages"]}["python"]
    assert {"train", "serve", "programs"} <= quick["missing"].keys()

    assert main(["doctor", "--full", "--json"]) == status
    full = json.loads(capsys.readouterr().out)
    every = {found["name"] for found in full["probes"]}
    assert every > probes.keys()
    assert {"cpu limit", "wall limit", "memory limit", "output limit"} <= every
    assert [found["name"] for found in full["languages"]] == [found["name"] for found in quick["languages"]]
    assert all(found["detail"] for found in (*full["languages"], *quick["languages"]))


@pytest.mark.process
def test_full_asks_torch_for_accelerators_and_judges_in_every_language(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken = [Availability("cpp17", False, "g++ 12, but a sum was judged compile_error: no cc1plus")]
    monkeypatch.setattr(doctor_survey, "probe_languages", lambda judge: spoken)
    monkeypatch.setattr(
        doctor_survey, "_torch_accelerators", lambda: Accelerators([], "9.9", "torch 9.9 broke")
    )
    main(["doctor", "--full"])
    said = capsys.readouterr().out
    assert "compile_error: no cc1plus" in said
    assert "torch 9.9 broke" in said
    main(["doctor"])
    assert "9.9" not in capsys.readouterr().out


@pytest.mark.process
def test_whose_supervisor_has_priority_is_said() -> None:
    code = (
        "import os\nfrom whetstone.cli.doctor_survey import "
        "probe_limits_under_load\nprint(probe_limits_under_load([]).detail)\nif os.geteuid() == 0: "
        "os.setresuid(54321, 54321, 54321)\nprint(probe_limits_under_load([]).detail)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    as_now, as_a_user = said.splitlines()
    if os.geteuid() == 0:
        assert "has priority" in as_now
        assert "time or memory" in as_a_user
    else:
        assert as_now == as_a_user


@pytest.mark.process
def test_the_default_imports_neither_torch_nor_rich() -> None:
    code = "import sys\nfrom whetstone.cli.main import main\nmain(['doctor'])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    heavy = {"torch", "transformers", "numpy", "pyarrow", "pydantic", "rich", "asyncio"}
    assert not heavy & set(done.stdout.splitlines()[-1].split())
