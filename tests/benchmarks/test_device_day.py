"""``benchmarks/device_day``: what it measures is kept whatever happens, and its sections run on a CPU."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

import benchmarks.device_day as device_day
from benchmarks.device_day import attention, vllm, workload
from benchmarks.device_day.__main__ import main
from benchmarks.device_day.context import SectionContext
from benchmarks.device_day.process import run_limited
from benchmarks.device_day.results import Record, Results
from benchmarks.device_day.sections import SECTIONS
from benchmarks.device_day.steps import total_length
from benchmarks.device_day.workload import BLOCKS, only_kernel
from tests.served_stand_in import StandIn, listening
from tests.trainer import reference_flash
from whetstone.engine.settings import EngineSection
from whetstone.trainer.attention_blocks import block_attention
from whetstone.trainer.attention_kernels import CANDIDATES, KernelCandidate, Layer, select
from whetstone.trainer.varlen_attention import varlen_attention


@pytest.fixture(autouse=True)
def one_thread() -> Generator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def context(tmp_path: Path) -> SectionContext:
    """That of a rehearsal."""
    return SectionContext(
        section="attention",
        device=torch.device("cpu"),
        small=True,
        model=None,
        vllm="",
        scratch=tmp_path,
        commit="",
        results=Results(tmp_path),
    )


def figures(context: SectionContext) -> list[dict[str, Any]]:
    """The recorded rows."""
    return [record["values"] for record in context.results.read() if record["kind"] == "figures"]


def notes(context: SectionContext) -> list[dict[str, Any]]:
    """The recorded notes."""
    return [record["values"] for record in context.results.read() if record["kind"] == "note"]


@pytest.mark.extended
@pytest.mark.process
def test_the_command_runs_sections_in_processes_and_writes_figures_and_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    rehearsal = ["--device", "cpu", "--small", "--minutes", "30", "--sections", "agreement"]
    main([*rehearsal, "--commit", "abc", "--out", str(out)])
    records = Results(out).read()
    ends = {record["section"]: record["values"]["outcome"] for record in records if record["kind"] == "end"}
    assert ends == {"machine": "complete", "agreement": "complete"}, (out / "device_day.log").read_text()
    assert {"item": "commit", "value": "abc"} in [record["values"] for record in records]
    [row] = [r["values"] for r in records if r["section"] == "agreement" and r["kind"] == "figures"]
    assert row["dtype"] == "bfloat16"
    assert 0 < row["log-prob, mean"] < 0.05
    assert 0 < row["gradient"] < 0.1
    page = (out / "device_day.md").read_text(encoding="utf-8")
    assert "| cpu | bfloat16 | blocks |" in page
    with pytest.raises(SystemExit, match="figures of another run; give a new folder"):
        main(["--device", "cpu", "--out", str(out)])


def test_sections_that_do_not_fit_are_left_out_and_named(tmp_path: Path) -> None:
    main(
        ["--device", "cpu", "--minutes", "0.01", "--sections", "memory,large", "--out", str(tmp_path / "out")]
    )
    records = Results(tmp_path / "out").read()
    assert [record["section"] for record in records] == ["machine", "memory", "large"]
    assert all(record["values"]["outcome"].startswith("left out: ") for record in records)


@pytest.mark.parametrize("flags", [["--sections", "memory,larg"], ["--minutes", "0"]])
def test_wrong_options_are_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(flags)
    assert flags[0] in capsys.readouterr().err


def test_the_page_lists_the_sections_with_their_limits_which_fit_the_promised_minutes() -> None:
    assert sum(section.limit_s for section in SECTIONS) <= 25 * 60
    page = Path(device_day.__file__).parent.with_suffix(".md").read_text(encoding="utf-8")
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in page.splitlines() if line[:3] == "| `"]
    assert [(row[1], row[3]) for row in rows] == [
        (section.name, str(section.limit_s)) for section in SECTIONS
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "limit", "reason"),
    [
        ("print('fine')", 60, ""),
        ("import sys; print('first'); sys.exit('the reason')", 60, "exit status 1: the reason"),
        ("import os; os.kill(os.getpid(), 9)", 60, "killed by SIGKILL"),
        ("import time; time.sleep(600)", 0.5, "stopped after its limit"),
    ],
)
def test_how_a_section_ends_is_said(tmp_path: Path, code: str, limit: float, reason: str) -> None:
    found = run_limited([sys.executable, "-c", code], limit, tmp_path / "log").reason
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_a_record_that_was_cut_off_loses_nothing_else(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add("memory", tokens=8192, outcome="a|b\nc", share=0.123456)
    with results.lines.open("a", encoding="utf-8") as file:
        file.write('{"section": "mem')
    found: list[Record] = results.read()
    assert [record["values"]["tokens"] for record in found] == [8192]
    results.write_page()
    assert "| 8,192 | a\\|b c | 0.1235 |" in results.page.read_text(encoding="utf-8")


@pytest.mark.extended
def test_a_measurement_that_fails_is_recorded_and_the_section_goes_on(context: SectionContext) -> None:
    with context.attempt(tokens=1):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with context.attempt(tokens=2):
        raise ValueError("wrong")
    assert notes(context) == [
        {"tokens": 1, "outcome": "out of memory"},
        {"tokens": 2, "outcome": "ValueError: wrong"},
    ]


@pytest.mark.extended
def test_each_usable_kernel_is_compared_with_blocks(
    context: SectionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*row: Any) -> torch.Tensor:
        return 1.5 * block_attention(*row)

    candidates = [
        KernelCandidate("torch", varlen_attention, lambda layer: None),
        KernelCandidate("wrong", wrong, lambda layer: None),
        KernelCandidate("absent", wrong, lambda layer: "not here"),
    ]
    monkeypatch.setattr(workload, "CANDIDATES", candidates)
    with reference_flash.torch_kernels():
        attention.compare_kernels(context)
    rows = [row for row in figures(context) if row.get("layer") == "window"]
    assert [row["kernel"] for row in rows] == ["absent", "torch", "wrong", BLOCKS]
    assert rows[0]["output"] == "not here"
    for row in rows[1:]:
        errors = [row[name] for name in ("output", "queries", "keys", "values")]
        assert all((0.4 < error < 0.6) == (row["kernel"] == "wrong") for error in errors), row
        assert row["kernel"] == "wrong" or max(errors) < 0.02
    assert {row["kernel"] for row in figures(context) if "TFLOP/s" in row} == {"torch", "wrong", BLOCKS}


def test_a_kernel_can_be_chosen_for_a_measurement() -> None:
    layer = Layer(torch.device("meta"), torch.bfloat16, 4, 2, 64, 0.0, False, False)
    first = select(layer)
    with only_kernel(CANDIDATES[1]._replace(obstacle=lambda layer: None)):
        assert select(layer) is CANDIDATES[0].kernel is not first
    with only_kernel(None):
        assert select(layer) is block_attention
    assert select(layer) is first


def test_overlapping_times_are_counted_once() -> None:
    assert total_length([(0, 2), (1, 3), (5, 6), (5.5, 5.75), (8, 7)]) == pytest.approx(4)
    assert total_length([]) == 0


@pytest.mark.extended
@pytest.mark.process
def test_a_server_is_measured_asleep_and_awake(context: SectionContext) -> None:
    with listening(StandIn("vllm")) as server:
        section = EngineSection(kind="vllm", placement="shared", options={"url": server.url})
        vllm.measure_server(context, section)
        assert server.faults == []
        assert server.log.count("sleep") == 5
    rows = figures(context)
    assert [row["batch"] for row in rows if "batch" in row] == [1, 16]
    sources = [row["source"] for row in rows if "source" in row]
    assert sources == ["this process"] * 3 + ["published, full"] + ["published, delta"] * 3
    assert [row["step"] for row in rows if "step" in row] == [1, 2, 3, 4, 5]
    assert [note for note in notes(context) if "outcome" in note] == []
